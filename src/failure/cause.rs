//! Why something went wrong, by name.
//!
//! **Invariants.** Closed: scripts, pages and dead letters carry the texts, so a text is never changed
//! and never given to another meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Why, by name. The texts are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Cause {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl Cause {
            /// Every cause there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The text that scripts see.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

causes! {
    /// The store asks for less load.
    Throttled => "throttled",
    /// The store, or a proxy before it, failed in itself.
    ServerError => "server-error",
    /// A time limit was reached, ours or the store's.
    Timeout => "timeout",
    /// No connection, or one that broke.
    Connection => "connection",
    /// The endpoint's name does not resolve.
    Dns => "dns",
    /// The TLS handshake or a certificate.
    Tls => "tls",
    /// A proxy or captive portal wants something of its own.
    Proxy => "proxy",
    /// The store sends us elsewhere for now.
    Redirect => "redirect",
    /// What answers does not speak S3, or not at this address.
    Endpoint => "endpoint",
    /// This host's clock differs from the store's.
    ClockSkew => "clock-skew",
    /// The key, or the signature made with it, is refused.
    Auth => "auth",
    /// The session token has expired.
    TokenExpired => "token-expired",
    /// A policy forbids it.
    AccessDenied => "access-denied",
    /// There are no credentials, or their provider fails.
    Credentials => "credentials",
    /// Account, contract or bill.
    Account => "account",
    /// Our own settings do not make a request.
    Configuration => "configuration",
    /// The bucket or the archive's folder is not there.
    NoBucket => "no-bucket",
    /// Another region, or another style of address.
    WrongRegion => "wrong-region",
    /// The encryption key.
    Kms => "kms",
    /// The store is full, or a quota is.
    Quota => "quota",
    /// The store cannot do what is asked.
    Capability => "capability",
    /// The store does not take our request as it is.
    BadRequest => "bad-request",
    /// Object Lock is asked for and not configured, or the other way round.
    ObjectLock => "object-lock",
    /// The bytes that arrived are not the bytes that were announced.
    Digest => "digest",
    /// An answer claims success and does not prove it.
    Unproven => "unproven",
    /// What the store gave back does not decode.
    Undecodable => "undecodable",
    /// A multipart upload is gone or does not fit together.
    MultipartLost => "multipart-lost",
    /// The object or a part is larger than something on the way takes.
    TooLarge => "too-large",
    /// The object's key or metadata is not taken.
    BadKey => "bad-key",
    /// Other bytes are committed, or stored, under this name.
    Conflict => "conflict",
    /// Somebody else is at the same object or bucket at this moment.
    Contention => "contention",
    /// The object lies in an archive tier and has to be restored first.
    ColdStorage => "cold-storage",
    /// What is stored is not what was put there.
    ArchiveDamaged => "archive-damaged",
    /// Another writer holds the lease.
    LeaseLost => "lease-lost",
    /// The segment changed between its two reads.
    SourceChanged => "source-changed",
    /// The segment is damaged.
    SourceDamaged => "source-damaged",
    /// The segment is gone.
    SourceGone => "source-gone",
    /// The segment is encrypted, and policy refuses such ones.
    Encrypted => "encrypted",
    /// The segment is in InnoDB pages.
    PageFormat => "page-format",
    /// A process may still write the file that was called a dead server's last.
    StillOpen => "still-open",
    /// A disk or file system of this host fails.
    LocalIo => "local-io",
    /// A disk of this host is full or read-only.
    DiskFull => "disk-full",
    /// This host's permissions.
    Permission => "permission",
    /// Out of file descriptors or memory.
    TooManyFiles => "too-many-files",
    /// Not in the table.
    Unknown => "unknown",
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_has_its_own_kebab_case_text() {
        let texts: BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(texts.len(), Cause::ALL.len());
        for cause in Cause::ALL {
            let text = cause.as_str();
            assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{text}");
            let json = serde_json::to_string(cause).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Cause>(&json).unwrap(), *cause);
        }
    }
}
