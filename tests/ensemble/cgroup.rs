//! A cgroup that limits the memory of one process: the kernel kills that one, and no other, where it wants more.

use std::{fs, io, path::PathBuf, process};

/// Below the cgroup of this process, and removed at the end.
pub(crate) struct MemoryGroup {
    home: PathBuf,
    limit: &'static str,
    events: &'static str,
}

impl MemoryGroup {
    /// Fails, and says why, where this process may not make one.
    pub(crate) fn new() -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").expect("Linux has cgroups");
        let of = |controller: &str| {
            let mut lines = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            let path = lines.find(|(those, _)| those.split(',').any(|one| one == controller))?.1;
            Some(path.trim_start_matches('/').to_owned())
        };
        let (above, limit, events) = match (of("memory"), of("")) {
            (Some(path), _) => (
                "/sys/fs/cgroup/memory/".to_owned() + &path,
                "memory.limit_in_bytes",
                "memory.oom_control",
            ),
            (None, Some(path)) => {
                ("/sys/fs/cgroup/".to_owned() + &path, "memory.max", "memory.events")
            }
            (None, None) => return Err("no cgroups here".to_owned()),
        };
        let home = PathBuf::from(above).join(format!("bellwether-{}", process::id()));
        let refused = |error: io::Error| format!("no cgroup {}: {error}", home.display());
        fs::create_dir(&home).map_err(refused)?;
        let group = Self { home, limit, events };
        // Not there where the cgroups above leave memory to others.
        match fs::exists(group.home.join(limit)) {
            Ok(true) => Ok(group),
            _ => Err(format!("no {limit} in {}", group.home.display())),
        }
    }

    /// Puts this process in, and limits what it takes from now on.
    pub(crate) fn limit(&self, process: u32, bytes: u64) {
        self.write(self.limit, bytes);
        self.write("cgroup.procs", process.into());
    }

    /// Returns how many processes of this cgroup the kernel has killed.
    pub(crate) fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.home.join(self.events)).expect("the kernel counts");
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.parse().ok()).expect("since Linux 4.13")
    }

    fn write(&self, file: &str, number: u64) {
        fs::write(self.home.join(file), number.to_string()).expect("root may set it");
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.home) {
            eprintln!("{} stays behind: {error}", self.home.display());
        }
    }
}
