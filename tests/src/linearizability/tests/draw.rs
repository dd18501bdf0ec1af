//! Draws histories that are good, because there was an object on which they happened.

use fastrand::Rng;

use crate::linearizability::{Access, Append, Count, Operation, Outcome, Transfer};

/// An action that can be drawn, done to an object of its own, and spoilt.
pub trait Drawn: Clone {
    type Object: Default;

    /// What a client is about to do. `number` is given to no other.
    fn draw(rng: &mut Rng, number: u64) -> Self;

    /// Looks at the object first, if it has to.
    fn look(&mut self, _: &Self::Object) {}

    /// Does it, and writes down what was told.
    fn happen(&mut self, object: &mut Self::Object);

    /// Tells something else.
    fn spoil(&mut self, rng: &mut Rng, numbers: u64);
}

impl Drawn for Access {
    type Object = Option<u64>;

    fn draw(rng: &mut Rng, number: u64) -> Access {
        match rng.u8(0..5) {
            0 | 1 => Access::Set(number),
            2 => Access::Swap {
                from: None,
                to: number,
            },
            _ => Access::Get(None),
        }
    }

    fn look(&mut self, object: &Option<u64>) {
        if let Access::Swap { from, .. } = self {
            *from = *object;
        }
    }

    fn happen(&mut self, object: &mut Option<u64>) {
        match self {
            Access::Set(value) => *object = Some(*value),
            Access::Get(found) => *found = *object,
            Access::Swap { from, to } if from == object => *object = Some(*to),
            Access::Swap { from, .. } => *self = Access::Get(*from),
        }
    }

    fn spoil(&mut self, rng: &mut Rng, numbers: u64) {
        let other = rng.bool().then(|| rng.u64(..numbers));
        match self {
            Access::Set(_) => {}
            Access::Get(found) => *found = other,
            Access::Swap { from, .. } => *from = other,
        }
    }
}

impl Drawn for Count {
    type Object = i64;

    fn draw(rng: &mut Rng, _: u64) -> Count {
        match rng.u8(0..3) {
            0 => Count::Get(0),
            by => Count::Increase {
                by: i64::from(by),
                told: None,
            },
        }
    }

    fn happen(&mut self, object: &mut i64) {
        match self {
            Count::Increase { by, told } => {
                *object += *by;
                *told = Some(*object);
            }
            Count::Get(found) => *found = *object,
        }
    }

    fn spoil(&mut self, rng: &mut Rng, _: u64) {
        let more = rng.i64(-2..=2);
        match self {
            Count::Increase { told, .. } => *told = told.map(|told| told + more),
            Count::Get(found) => *found += more,
        }
    }
}

impl Drawn for Append {
    type Object = Vec<u64>;

    fn draw(rng: &mut Rng, number: u64) -> Append {
        match rng.bool() {
            true => Append::Push {
                element: number,
                told: None,
            },
            false => Append::Read(Vec::new()),
        }
    }

    fn happen(&mut self, object: &mut Vec<u64>) {
        match self {
            Append::Push { element, told } => {
                object.push(*element);
                *told = Some(object.len());
            }
            Append::Read(elements) => elements.clone_from(object),
        }
    }

    fn spoil(&mut self, rng: &mut Rng, numbers: u64) {
        match self {
            Append::Push { told, .. } => {
                *told = told.map(|told| (told + rng.usize(0..3)).saturating_sub(1))
            }
            Append::Read(elements) => spoil_list(elements, rng, numbers),
        }
    }
}

/// Something is lost, there twice, in the wrong place, or was never written.
fn spoil_list(elements: &mut Vec<u64>, rng: &mut Rng, numbers: u64) {
    let place = rng.usize(0..=elements.len());
    match rng.u8(0..4) {
        0 if place < elements.len() => {
            elements.remove(place);
        }
        1 if place < elements.len() => elements.push(elements[place]),
        2 if place + 1 < elements.len() => elements.swap(place, place + 1),
        _ => elements.insert(place, rng.u64(..numbers)),
    }
}

impl Drawn for Transfer {
    type Object = ([i64; 3], Vec<u64>);

    fn draw(rng: &mut Rng, number: u64) -> Transfer {
        let from = rng.usize(0..3);
        match rng.u8(0..3) {
            0 => Transfer::Read {
                balances: vec![0; 3],
                log: Vec::new(),
            },
            _ => Transfer::Move {
                number,
                from,
                to: (from + rng.usize(1..3)) % 3,
                amount: rng.i64(1..10),
                told: None,
            },
        }
    }

    fn happen(&mut self, object: &mut ([i64; 3], Vec<u64>)) {
        match self {
            Transfer::Move {
                number,
                from,
                to,
                amount,
                told,
            } => {
                object.0[*from] -= *amount;
                object.0[*to] += *amount;
                object.1.push(*number);
                *told = Some((object.0[*from], object.0[*to]));
            }
            Transfer::Read { balances, log } => {
                *balances = object.0.to_vec();
                log.clone_from(&object.1);
            }
        }
    }

    fn spoil(&mut self, rng: &mut Rng, numbers: u64) {
        match self {
            Transfer::Move { told, .. } => *told = told.map(|(from, to)| (from + 1, to)),
            Transfer::Read { balances, log } => match rng.bool() {
                true => balances[rng.usize(..3)] += 1,
                false => spoil_list(log, rng, numbers),
            },
        }
    }
}

pub struct Shape {
    pub clients: usize,
    pub operations: usize,
    /// Of a hundred operations, so many are unknown; half of them are done all the same.
    pub unknown: u8,
    pub refused: u8,
}

/// What a client is doing.
struct Busy<A> {
    begun: u64,
    action: A,
    has_happened: bool,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Done,
    Unknown,
    Lost,
    Refused,
}

/// Clients take turns at random: each begins, has it done, and hears of it.
pub fn history<A: Drawn>(rng: &mut Rng, shape: &Shape) -> Vec<Operation<A>> {
    let mut object = A::Object::default();
    let mut busy: Vec<Option<Busy<A>>> = (0..shape.clients).map(|_| None).collect();
    let mut operations = Vec::new();
    let mut late: Vec<Busy<A>> = Vec::new();
    for (time, number) in (0..).zip(1..) {
        if operations.len() >= shape.operations {
            break;
        }
        // What nobody waits for any more may still happen.
        if !late.is_empty() && rng.u8(0..4) == 0 {
            let place = rng.usize(..late.len());
            late.swap_remove(place).action.happen(&mut object);
        }
        let client = rng.usize(..shape.clients);
        let Some(mut now) = busy[client].take() else {
            let mut action = A::draw(rng, number);
            action.look(&object);
            busy[client] = Some(Busy {
                begun: time,
                action,
                has_happened: false,
                fate: fate(rng, shape),
            });
            continue;
        };
        if !now.has_happened && matches!(now.fate, Fate::Done | Fate::Unknown) {
            if now.fate == Fate::Unknown && rng.bool() {
                operations.push(over(client, &now, time));
                late.push(now);
                continue;
            }
            now.action.happen(&mut object);
            now.has_happened = true;
            busy[client] = Some(now);
            continue;
        }
        operations.push(over(client, &now, time));
    }
    // What is still going on has happened, or not.
    for (client, now) in busy.into_iter().enumerate() {
        if let Some(now) = now.filter(|now| now.has_happened) {
            let unheard = Busy {
                fate: Fate::Unknown,
                ..now
            };
            operations.push(over(client, &unheard, 0));
        }
    }
    operations
}

fn fate(rng: &mut Rng, shape: &Shape) -> Fate {
    match rng.u8(..100) {
        chance if chance < shape.unknown => match rng.bool() {
            true => Fate::Unknown,
            false => Fate::Lost,
        },
        chance if chance < shape.unknown + shape.refused => Fate::Refused,
        _ => Fate::Done,
    }
}

fn over<A: Clone>(client: usize, busy: &Busy<A>, time: u64) -> Operation<A> {
    Operation {
        client,
        begun: busy.begun,
        outcome: match busy.fate {
            Fate::Done => Outcome::Done(time),
            Fate::Unknown | Fate::Lost => Outcome::Unknown,
            Fate::Refused => Outcome::Refused(time),
        },
        action: busy.action.clone(),
    }
}
