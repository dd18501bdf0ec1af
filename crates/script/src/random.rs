//! math.random and math.randomseed: the generator of `drand48`, the same everywhere.

use mlua::{Lua, Table};

use crate::raw::native::{self, Args, Throw, function, none, one};
use crate::run::{Phase, Run};
use std::rc::Rc;

const MULTIPLIER: u64 = 0x5_deec_e66d;
const INCREMENT: u64 = 0xb;
const BITS: u64 = (1 << 48) - 1;
/// What a seed leaves out.
const LOW: u64 = 0x330e;
/// The numbers drawn have 31 bits.
const RANGE: i32 = i32::MAX;

pub struct Random {
    state: u64,
    /// Where runs begin: each elsewhere, whatever seed the last one set.
    runs: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random {
            state: seed & BITS,
            runs: seed,
        }
    }

    pub fn begin(&mut self) {
        // A Weyl sequence, scrambled by one multiplication: enough to set runs apart.
        self.runs = self.runs.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.runs ^ (self.runs >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.state = mixed >> 16;
    }

    fn seed(&mut self, seed: i32) {
        self.state = u64::from(seed as u32) << 16 | LOW;
    }

    fn next(&mut self) -> i32 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & BITS;
        (self.state >> 17) as i32
    }

    /// From 0 up to, but without, 1.
    fn fraction(&mut self) -> f64 {
        f64::from(self.next() % RANGE) / f64::from(RANGE)
    }
}

/// Puts Redis' generator into the library `math`.
pub fn install(lua: &Lua, run: &Rc<Run>, math: &Table) -> mlua::Result<()> {
    let shared = run.clone();
    let random = function(lua, move |lua, args| {
        in_script(&shared, "math.random")?;
        one(draw(&shared, args)?, lua)
    })?;
    math.raw_set("random", random)?;
    let shared = run.clone();
    let seed = function(lua, move |_, args| {
        in_script(&shared, "math.randomseed")?;
        let seed = args.integer(1)? as i32;
        shared.random.borrow_mut().seed(seed);
        none()
    })?;
    math.raw_set("randomseed", seed)
}

fn in_script(run: &Run, name: &str) -> Result<(), Throw> {
    match run.phase() {
        Phase::Script => Ok(()),
        _ => Err(native::Throw::message(format!(
            "{name} can only be called inside a script invocation"
        ))),
    }
}

fn draw(run: &Run, args: &Args) -> Result<f64, Throw> {
    let fraction = run.random.borrow_mut().fraction();
    let (low, high) = match args.len() {
        0 => return Ok(fraction),
        1 => (1, args.integer(1)? as i32),
        2 => (args.integer(1)? as i32, args.integer(2)? as i32),
        _ => return Err(Throw::message("wrong number of arguments")),
    };
    if low > high {
        return Err(args.wrong(args.len(), "interval is empty"));
    }
    // The width wraps around in 32 bits, as it does in C.
    let width = high.wrapping_sub(low).wrapping_add(1);
    Ok((fraction * f64::from(width)).floor() + f64::from(low))
}
