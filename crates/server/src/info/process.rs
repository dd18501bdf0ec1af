//! What the operating system knows of the process.

use std::ffi::CStr;

/// Time that the processor spent.
#[derive(Clone, Copy, Default)]
pub struct Cpu {
    pub user: f64,
    pub system: f64,
}

/// Of the process, and of the children it waited for.
pub fn cpu_seconds() -> (Cpu, Cpu) {
    (usage(libc::RUSAGE_SELF), usage(libc::RUSAGE_CHILDREN))
}

fn usage(of: libc::c_int) -> Cpu {
    // SAFETY: rusage is plain data, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place to write for the length of the call.
    if unsafe { libc::getrusage(of, &raw mut usage) } != 0 {
        return Cpu::default();
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Cpu {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
    }
}

/// Name, release and machine of the system.
pub fn system() -> String {
    // SAFETY: utsname is plain data, for which all zeroes is a value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is a valid place to write for the length of the call.
    if unsafe { libc::uname(&raw mut name) } != 0 {
        return std::env::consts::OS.into();
    }
    let text = |field: &[libc::c_char]| {
        // SAFETY: uname ends each of its strings with a NUL inside the field.
        let text = unsafe { CStr::from_ptr(field.as_ptr()) };
        text.to_string_lossy().into_owned()
    };
    format!(
        "{} {} {}",
        text(&name.sysname),
        text(&name.release),
        text(&name.machine)
    )
}

pub fn system_memory() -> u64 {
    page_size() * configured(libc::_SC_PHYS_PAGES)
}

/// Memory of the process that is in RAM; zero if the system does not tell.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1);
    page_size() * pages.and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

fn page_size() -> u64 {
    configured(libc::_SC_PAGESIZE)
}

fn configured(name: libc::c_int) -> u64 {
    // SAFETY: sysconf takes any name and only reads.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells() {
        assert!(resident_bytes() > 1 << 20);
        assert!(system_memory() > resident_bytes());
        assert!(system().starts_with("Linux ") || !cfg!(target_os = "linux"));
        let mut work = 0u64;
        for number in 0..20_000_000u64 {
            work = std::hint::black_box(work ^ number);
        }
        assert!(cpu_seconds().0.user > 0.0);
    }
}
