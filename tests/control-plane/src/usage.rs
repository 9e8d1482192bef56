//! The resource use of a process so far, read from `/proc`.

use std::io;

/// A size from `/proc/<pid>/status`, in KiB: `VmHWM` is the highest resident size so far, `VmRSS` the current one.
pub fn memory_kib(pid: u32, field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    memory_field(&status, field).ok_or_else(|| missing(field))
}

/// CPU time of all its threads, user and system, in seconds.
pub fn cpu_seconds(pid: u32) -> io::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&stat).ok_or_else(|| missing("processor time"))?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a test run are far below 2^52")]
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no {what} in /proc: the process has ended"))
}

fn memory_field(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The program's name is in brackets and may contain spaces and brackets itself, so fields count from the last bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_its_whole_name() {
        let status = "Name:\tetcd\nVmHWMX:\t1 kB\nVmHWM:\t  41236 kB\n";
        assert_eq!(memory_field(status, "VmHWM"), Some(41_236));
        assert_eq!(memory_field(status, "VmRSS"), None);
    }

    #[test]
    fn a_bracket_in_the_program_name_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0";
        assert_eq!(cpu_ticks(stat), Some(300));
    }
}
