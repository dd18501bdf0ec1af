//! Tries every order, with objects of its own. It is right because it is simple, and takes forever.

use crate::linearizability::{Access, Append, Count, Operation, Outcome, Transfer};

/// What an action does to an object, and whether it would have been told what it was.
pub trait Plain: Clone {
    type Object: Clone + Default;

    fn perform(&self, object: &mut Self::Object, is_told: bool) -> bool;
}

impl Plain for Access {
    type Object = Option<u64>;

    fn perform(&self, object: &mut Option<u64>, _: bool) -> bool {
        match self {
            Access::Set(value) => *object = Some(*value),
            Access::Get(found) => return found == object,
            Access::Swap { from, to } => return object.replace(*to) == *from,
        }
        true
    }
}

impl Plain for Count {
    type Object = i64;

    fn perform(&self, object: &mut i64, is_told: bool) -> bool {
        match self {
            Count::Increase { by, told } => {
                *object += by;
                !is_told || told.is_none_or(|told| told == *object)
            }
            Count::Get(found) => found == object,
        }
    }
}

impl Plain for Append {
    type Object = Vec<u64>;

    fn perform(&self, object: &mut Vec<u64>, is_told: bool) -> bool {
        match self {
            Append::Push { element, told } => {
                object.push(*element);
                !is_told || told.is_none_or(|told| told == object.len())
            }
            Append::Read(elements) => elements == object,
        }
    }
}

impl Plain for Transfer {
    type Object = ([i64; 3], Vec<u64>);

    fn perform(&self, object: &mut ([i64; 3], Vec<u64>), is_told: bool) -> bool {
        match self {
            Transfer::Move {
                number,
                from,
                to,
                amount,
                told,
            } => {
                object.0[*from] -= amount;
                object.0[*to] += amount;
                object.1.push(*number);
                let left = (object.0[*from], object.0[*to]);
                !is_told || told.is_none_or(|told| told == left)
            }
            Transfer::Read { balances, log } => balances[..] == object.0 && *log == object.1,
        }
    }
}

pub fn is_linearizable<A: Plain>(operations: &[Operation<A>]) -> bool {
    let mut left: Vec<&Operation<A>> = operations.iter().collect();
    left.retain(|operation| !matches!(operation.outcome, Outcome::Refused(_)));
    goes_on(&left, &A::Object::default())
}

fn goes_on<A: Plain>(left: &[&Operation<A>], object: &A::Object) -> bool {
    let ends = left.iter().filter_map(|operation| match operation.outcome {
        Outcome::Done(end) => Some(end),
        _ => None,
    });
    // All that was done has its place; the rest was not.
    let Some(first_end) = ends.min() else {
        return true;
    };
    (0..left.len()).any(|place| {
        if left[place].begun > first_end {
            return false;
        }
        let mut object = object.clone();
        let is_told = left[place].outcome != Outcome::Unknown;
        if !left[place].action.perform(&mut object, is_told) {
            return false;
        }
        let rest: Vec<&Operation<A>> = left
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != place)
            .map(|(_, other)| *other)
            .collect();
        goes_on(&rest, &object)
    })
}
