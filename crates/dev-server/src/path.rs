//! Validates paths, and finds their parents.

use crate::error::ErrorCode;

/// The paths that no client may delete.
const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// Refuses the paths that `PathUtils.validatePath` refuses.
pub(crate) fn validate(path: &str) -> Result<(), ErrorCode> {
    let Some(names) = path.strip_prefix('/') else { return Err(ErrorCode::BadArguments) };
    // The root is valid. In any other path, each name between slashes has at least one character.
    let is_valid_path = names.is_empty()
        || names.split('/').all(|name| !matches!(name, "" | "." | "..") && name.chars().all(valid));
    if is_valid_path { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

/// Returns the parent's path of a znode to create, where the root's path is "". Refuses fewer paths than [`validate`],
/// which a create calls only after other checks, as in the real server.
pub(crate) fn parent_of_new(path: &str) -> Result<&str, ErrorCode> {
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments);
    }
    path.rsplit_once('/').map(|(parent, _)| parent).ok_or(ErrorCode::BadArguments)
}

/// Returns the parent's path of a znode to delete. Refuses the server's own znodes.
pub(crate) fn parent_of_existing(path: &str) -> Result<&str, ErrorCode> {
    if SPECIAL.contains(&path) {
        return Err(ErrorCode::BadArguments);
    }
    parent_of_new(path)
}

/// Returns the path itself, then its parent, and so on up to the root. An empty path has no ancestors, and is not
/// returned itself.
pub(crate) fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    let first = if path.is_empty() { None } else { Some(path) };
    std::iter::successors(first, |path| {
        if *path == "/" {
            return None;
        }
        path.rsplit_once('/').map(|(parent, _)| if parent.is_empty() { "/" } else { parent })
    })
}

/// Returns true if a name may contain this character. Java checks each unit of UTF-16 and refuses surrogates, and so
/// refuses all characters beyond 16 bits.
fn valid(character: char) -> bool {
    !matches!(
        u32::from(character),
        0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_names_are_valid() {
        for path in ["/", "/a", "/a/b", "/a.b/..c/...", "/é/\u{a0}", "/ "] {
            assert_eq!(validate(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn what_path_utils_refuses_is_refused() {
        for path in [
            "",
            "a",
            "a/b",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/..",
            "/\0",
            "/\u{1f}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{fff0}",
            "/\u{fffd}",
            "/\u{1f600}",
        ] {
            assert_eq!(validate(path), Err(ErrorCode::BadArguments), "{path:?}");
        }
    }

    #[test]
    fn parents_are_what_lies_before_the_last_slash() {
        assert_eq!(parent_of_new("/a"), Ok(""));
        assert_eq!(parent_of_new("/a/b"), Ok("/a"));
        assert_eq!(parent_of_new("/a/"), Ok("/a"));
        assert_eq!(parent_of_new("a"), Err(ErrorCode::BadArguments));
        assert_eq!(parent_of_existing("/zookeeper"), Err(ErrorCode::BadArguments));
        assert_eq!(parent_of_existing("/zookeeper/x"), Ok("/zookeeper"));
    }

    #[test]
    fn ancestors_end_with_the_root() {
        assert_eq!(with_ancestors("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(with_ancestors("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(with_ancestors("").count(), 0);
    }
}
