//! Where an archive lives: `s3://bucket/prefix` or `file:///folder`.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The place of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A bucket of an S3 service.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// What every key begins with, without a slash at either end; may be empty.
        prefix: String,
    },
    /// A folder of a file system.
    File {
        /// The folder: absolute, without `.` and `..`.
        path: PathBuf,
    },
}

/// A text that does not say where an archive lives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadStoreUrl {
    /// Neither of the two schemes.
    #[error(
        "store URL {0:?} begins with neither s3:// nor file:///; write s3://bucket/prefix or file:///folder"
    )]
    Scheme(String),
    /// Not the name of a bucket.
    #[error(
        "bucket {0:?} is not 3 to 255 letters, digits, dots, dashes and underscores; write s3://bucket/prefix"
    )]
    Bucket(String),
    /// Not a prefix that every S3 service and tool can take.
    #[error(
        "prefix {0:?} has an empty part, a part . or .., or a character other than letters, digits and !_.*'()=+,@:&$-"
    )]
    Prefix(String),
    /// Not an absolute path.
    #[error(
        "file URL {0:?} does not name a folder by its absolute path without . and ..; write file:///srv/archive"
    )]
    Path(String),
}

impl FromStr for StoreUrl {
    type Err = BadStoreUrl;

    fn from_str(text: &str) -> Result<Self, BadStoreUrl> {
        if let Some(rest) = text.strip_prefix("s3://") {
            s3(rest)
        } else if let Some(path) = text.strip_prefix("file://") {
            file(path).ok_or_else(|| BadStoreUrl::Path(text.to_owned()))
        } else {
            Err(BadStoreUrl::Scheme(text.to_owned()))
        }
    }
}

fn s3(rest: &str) -> Result<StoreUrl, BadStoreUrl> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let in_bucket = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    if !(3..=255).contains(&bucket.len()) || !bucket.bytes().all(in_bucket) {
        return Err(BadStoreUrl::Bucket(bucket.to_owned()));
    }
    let in_part = |b: u8| b.is_ascii_alphanumeric() || b"!_.*'()=+,@:&$-".contains(&b);
    let good = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(in_part);
    if !prefix.is_empty() && !prefix.split('/').all(good) {
        return Err(BadStoreUrl::Prefix(prefix.to_owned()));
    }
    Ok(StoreUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

fn file(text: &str) -> Option<StoreUrl> {
    let path = Path::new(text);
    let plain = |part: Component<'_>| match part {
        Component::RootDir | Component::Normal(_) => true,
        Component::CurDir | Component::ParentDir | Component::Prefix(_) => false,
    };
    // Components drop a `.` in the middle, so the text is looked at too.
    let dots = text.split('/').any(|part| part == ".");
    let whole = path.is_absolute() && path.components().all(plain) && path.parent().is_some();
    (whole && !dots && !text.contains('\0'))
        .then(|| StoreUrl::File { path: path.components().collect() })
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::File { path } => write!(f, "file://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_read_and_print() {
        for (text, printed) in [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://bucket/a/b-c_d", "s3://bucket/a/b-c_d"),
            ("s3://bucket/a/", "s3://bucket/a"),
            ("file:///srv/archive/", "file:///srv/archive"),
            ("file:///srv//archive", "file:///srv/archive"),
        ] {
            assert_eq!(text.parse::<StoreUrl>().unwrap().to_string(), printed);
        }
        let StoreUrl::S3 { bucket, prefix } = "s3://bkt/x/y".parse().unwrap() else { panic!() };
        assert_eq!((bucket.as_str(), prefix.as_str()), ("bkt", "x/y"));
    }

    #[test]
    fn bad_urls_are_named() {
        let bad = |text: &str| text.parse::<StoreUrl>().unwrap_err();
        assert!(matches!(bad("bucket/prefix"), BadStoreUrl::Scheme(_)));
        assert!(matches!(bad("S3://bucket"), BadStoreUrl::Scheme(_)));
        assert!(matches!(bad("s3://"), BadStoreUrl::Bucket(_)));
        assert!(matches!(bad("s3://key:secret@bucket/x"), BadStoreUrl::Bucket(_)));
        for prefix in ["a//b", "/a", "a/../b", "a/./b", "a b", "a?x=1", "a%20b", "ä"] {
            assert!(
                matches!(bad(&format!("s3://bucket/{prefix}")), BadStoreUrl::Prefix(_)),
                "{prefix}"
            );
        }
        for path in ["", "/", "srv/archive", "/a/../b", "/a/./b", "/a/."] {
            assert!(matches!(bad(&format!("file://{path}")), BadStoreUrl::Path(_)), "{path}");
        }
    }
}
