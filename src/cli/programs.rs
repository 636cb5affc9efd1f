//! Checks whether programs can be run.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The exit code of a shell for a program that is not found.
const NOT_FOUND: u8 = 127;
/// The exit code of a shell for a program that cannot be run.
const NOT_RUNNABLE: u8 = 126;

/// Checks whether the program can be run: by its path, or by its name in a directory of `PATH`.
///
/// # Errors
/// The exit code, and one sentence with the reason and the remedy.
pub fn check_runnable(program: &OsStr) -> Result<(), (u8, String)> {
    check_runnable_in(program, std::env::var_os("PATH").as_deref())
}

fn check_runnable_in(program: &OsStr, path: Option<&OsStr>) -> Result<(), (u8, String)> {
    let cannot = |code, why: &str| Err((code, format!("cannot run {}: {why}", program.display())));
    if program.is_empty() {
        return Err((NOT_FOUND, "the name of the program to run is empty".into()));
    }
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = match path {
        _ if is_path => vec![program.into()],
        Some(path) => {
            std::env::split_paths(path).map(|directory| directory.join(program)).collect()
        }
        // Without PATH, the system searches directories that are not known here, so leave the check to the system call
        // that starts the program.
        None => return Ok(()),
    };
    if candidates.iter().any(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok()) {
        return Ok(());
    }
    match candidates.iter().any(|path| path.exists()) {
        true => cannot(NOT_RUNNABLE, "it is not a file that this user may execute"),
        false => cannot(NOT_FOUND, "file not found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn a_program_is_found_and_refused_as_by_a_shell() {
        assert_eq!(check_runnable_in("".as_ref(), None).unwrap_err().0, 127);
        let home = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| home.path().join(name));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        fs::write(first.join("plain"), "").unwrap();
        std::os::unix::fs::symlink("/bin/sh", second.join("shell")).unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();
        let found = |program: &Path| {
            let found = check_runnable_in(program.as_os_str(), Some(&path));
            found.map_err(|(code, why)| (code, why.rsplit_once(": ").map(|it| it.1.to_owned())))
        };
        let no = |code, why: &str| Err((code, Some(why.to_owned())));
        assert_eq!(found(Path::new("shell")), Ok(()));
        assert_eq!(found(&second.join("shell")), Ok(()));
        assert_eq!(found(Path::new("nothing")), no(127, "file not found"));
        assert_eq!(found(&first.join("nothing")), no(127, "file not found"));
        assert_eq!(found(&first), no(126, "it is not a file that this user may execute"));
        assert_eq!(
            found(Path::new("plain")),
            no(126, "it is not a file that this user may execute")
        );
        assert_eq!(
            check_runnable_in(OsStr::new("nothing"), None),
            Ok(()),
            "the system may know it"
        );
    }
}
