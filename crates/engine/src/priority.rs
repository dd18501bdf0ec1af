//! Which threads come first when there are more of them than processors.
//!
//! On a small machine what is done for nobody in particular, to move rows into RocksDB, to flush, compact and count, takes the
//! processor from those whom clients wait for, and from the clients themselves if they run here. So such threads give way. They
//! are not starved: each gets a tenth of a processor that others fight for, and all of one that nobody else wants. A commit
//! that has to wait for a drain leaves it its own. Compactions come behind flushes: they can wait for minutes, and a flush that
//! has to fight with them for what clients leave holds up drains, and so commits, for as long as it takes.

/// A tenth of the weight that others have.
const NICENESS: i32 = 10;
/// A third of that.
const NICENESS_OF_COMPACTIONS: i32 = 15;

/// From now on this thread, and those that it starts, come after others that want the processor.
pub fn give_way() {
    set_niceness(NICENESS);
}

/// The same, and after others that give way.
pub(crate) fn come_last() {
    set_niceness(NICENESS_OF_COMPACTIONS);
}

fn set_niceness(niceness: i32) {
    // SAFETY: setpriority takes any numbers, and zero stands for the calling thread. If the system refuses, all stays as it was.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
}

/// From now on this thread, and those that it starts, take a processor that is idle as soon as they are woken, but from no other
/// thread that is at work: they wait until it rests, or its time is up.
pub fn let_finish() {
    // SAFETY: all zeros are a valid sched_param, the only one that goes with this policy. It lives through the call, and zero stands
    // for the calling thread. If the system refuses, all stays as it was.
    unsafe {
        let none: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &none);
    }
}
