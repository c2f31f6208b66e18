//! Which keys are fine, in every store alike.
//!
//! **Invariants.** A checked key names one file below a root: no empty component, none that
//! begins with a dot, no control character, at most [`KEY_MAX`] bytes.

use crate::fault::{Fault, FaultKind, Operation};

/// S3 takes 1,024 bytes with the store's prefix.
const KEY_MAX: usize = 900;

fn refuse(operation: Operation, key: &str, why: &str) -> Fault {
    Fault::new(operation, FaultKind::Construction, format!("key {why}")).at(key)
}

fn check_text(operation: Operation, key: &str) -> Result<(), Fault> {
    if key.len() > KEY_MAX {
        return Err(refuse(operation, key, "is longer than 900 bytes"));
    }
    if key.chars().any(|c| c.is_control() || c == '\\') {
        return Err(refuse(operation, key, "has a control character or a backslash"));
    }
    Ok(())
}

/// Refuses what cannot be the key of an object.
pub(super) fn check(operation: Operation, key: &str) -> Result<(), Fault> {
    check_text(operation, key)?;
    if key.split('/').any(|name| name.is_empty() || name.starts_with('.')) {
        return Err(refuse(operation, key, "has an empty component or one that begins with a dot"));
    }
    Ok(())
}

/// Refuses what no key could begin with. The empty prefix is every key's.
pub(super) fn check_prefix(operation: Operation, prefix: &str) -> Result<(), Fault> {
    check_text(operation, prefix)?;
    let folders = prefix.rsplit_once('/').map(|(folders, _)| folders);
    if folders.is_some_and(|f| f.split('/').any(|n| n.is_empty() || n.starts_with('.'))) {
        return Err(refuse(operation, prefix, "prefix has a folder that no key can have"));
    }
    if prefix.rsplit('/').next().is_some_and(|name| name.starts_with('.')) {
        return Err(refuse(operation, prefix, "prefix has a name that begins with a dot"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_could_leave_the_root_are_refused() {
        for bad in
            ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".tmp-1", "a/.lock", "a\0b", "a\\b"]
        {
            assert!(check(Operation::Put, bad).is_err(), "{bad:?}");
        }
        for fine in ["a", "index/db1/0001-aabbccdd/manifests/0000000001.json", "a b/ä"] {
            assert!(check(Operation::Put, fine).is_ok(), "{fine:?}");
        }
        assert!(check(Operation::Put, &"a".repeat(901)).is_err());
    }

    #[test]
    fn prefixes_may_end_anywhere() {
        for fine in ["", "a", "a/", "a/b"] {
            assert!(check_prefix(Operation::List, fine).is_ok(), "{fine:?}");
        }
        for bad in ["/", "../", "a//", ".t", "a/.t"] {
            assert!(check_prefix(Operation::List, bad).is_err(), "{bad:?}");
        }
    }
}
