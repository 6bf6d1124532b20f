//! How many processors the process may use.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use linux::count;

/// How many processors the process may use.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// What std finds out, without the memory that it takes for that.
#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::fs::File;
    use std::io::{Read, Write};

    /// Where control groups that limit processor time are mounted. The first ones are of version 2,
    /// which has one hierarchy for everything.
    const MOUNTS: [(&str, Version); 4] = [
        ("/sys/fs/cgroup", Version::Two),
        ("/sys/fs/cgroup/unified", Version::Two),
        ("/sys/fs/cgroup/cpu", Version::One),
        ("/sys/fs/cgroup/cpu,cpuacct", Version::One),
    ];

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Version {
        One,
        Two,
    }

    /// How many processors the process may use.
    pub fn count() -> usize {
        allowed().min(limit().unwrap_or(usize::MAX)).max(1)
    }

    /// Those that the process may run on.
    fn allowed() -> usize {
        // SAFETY: integers, for which zero is a value.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the set is as large as is said.
        let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0;
        if failed {
            // More of them than a set has room for.
            // SAFETY: it reads a number.
            return usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) })
                .unwrap_or(1);
        }
        // SAFETY: the set is initialised.
        unsafe { libc::CPU_COUNT(&set) as usize }
    }

    /// How many processors the least time that a control group gives is worth.
    fn limit() -> Option<usize> {
        let mut text = [0; 4096];
        let groups = read("/proc/self/cgroup", &mut text)?;
        let limits = MOUNTS.iter().filter_map(|&(mount, version)| {
            let group = groups.lines().find_map(|line| group_of(line, version))?;
            // In a container the group may be named from outside: those above it are tried, too.
            let lengths = (0..group.len()).rev().filter(|&at| group.as_bytes()[at] == b'/');
            let mut groups = std::iter::once(group.len()).chain(lengths).map(|end| &group[..end]);
            match version {
                Version::Two => groups.filter_map(|group| limit_of_two(mount, group)).min(),
                Version::One => groups.find_map(|group| limit_of_one(mount, group)),
            }
        });
        limits.min()
    }

    /// The group in a line `number:controllers:/group`; version 2 is number 0.
    fn group_of(line: &str, version: Version) -> Option<&str> {
        let (number, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let is_it = match version {
            Version::Two => number == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|name| name == "cpu"),
        };
        is_it.then_some(group.trim_end_matches('/'))
    }

    fn limit_of_two(mount: &str, group: &str) -> Option<usize> {
        let mut text = [0; 64];
        let (quota, period) =
            read_in(mount, group, "cpu.max", &mut text)?.trim().split_once(' ')?;
        processors(quota, period)
    }

    fn limit_of_one(mount: &str, group: &str) -> Option<usize> {
        let (mut quota, mut period) = ([0; 64], [0; 64]);
        let quota = read_in(mount, group, "cpu.cfs_quota_us", &mut quota)?;
        processors(quota, read_in(mount, group, "cpu.cfs_period_us", &mut period)?)
    }

    /// No limit is "max", or -1.
    fn processors(quota: &str, period: &str) -> Option<usize> {
        let number = |text: &str| text.trim().parse::<usize>().ok();
        number(quota)?.checked_div(number(period)?)
    }

    fn read_in<'a>(mount: &str, group: &str, name: &str, to: &'a mut [u8]) -> Option<&'a str> {
        // std allocates for paths that are longer than this.
        let mut path = [0; 256];
        let mut left = &mut path[..];
        write!(left, "{mount}{group}/{name}").ok()?;
        let unused = left.len();
        let end = path.len() - unused;
        read(std::str::from_utf8(&path[..end]).ok()?, to)
    }

    /// The beginning of a file, as far as it fits.
    fn read<'a>(path: &str, to: &'a mut [u8]) -> Option<&'a str> {
        let mut file = File::open(path).ok()?;
        let mut end = 0;
        while end < to.len() {
            match file.read(&mut to[end..]).ok()? {
                0 => break,
                count => end += count,
            }
        }
        std::str::from_utf8(&to[..end]).ok()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn std_counts_as_many() {
            assert_eq!(count(), std::thread::available_parallelism().unwrap().get());
        }

        #[test]
        fn groups_and_their_limits() {
            assert_eq!(group_of("0::/a/b", Version::Two), Some("/a/b"));
            assert_eq!(group_of("0::/", Version::Two), Some(""));
            assert_eq!(group_of("4:cpu,cpuacct:/docker/1", Version::One), Some("/docker/1"));
            assert_eq!(group_of("5:cpuset:/x", Version::One), None);
            assert_eq!(group_of("5:cpuset:/x", Version::Two), None);
            assert_eq!(processors("250000", "100000\n"), Some(2));
            assert_eq!(processors("max", "100000"), None);
            assert_eq!(processors("-1\n", "100000\n"), None);
        }
    }
}
