//! What went wrong, as plain serialisable facts. No judgement: that is `failure`'s.
//!
//! **Invariants.** A fault never carries a secret: the store layer keeps signed headers and URLs
//! with credentials out of it. Text from a server is cut at [`TEXT_MAX`] bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest text taken over from a server's answer.
pub const TEXT_MAX: usize = 2048;

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Making the client or its credentials.
    Connect,
    /// Storing an object in one request.
    Put,
    /// Beginning a multipart upload.
    CreateMultipart,
    /// Storing one part.
    UploadPart,
    /// Putting the parts together.
    CompleteMultipart,
    /// Giving a multipart upload up.
    AbortMultipart,
    /// Reading an object.
    Get,
    /// Reading an object's facts.
    Head,
    /// Listing objects.
    List,
    /// Listing multipart uploads.
    ListMultipart,
    /// Reading the segment's own file.
    ReadSource,
    /// Comparing what the store answered with what was sent.
    Prove,
    /// Creating the manifest.
    Commit,
    /// Reading or holding the writer lease.
    Lease,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Put => "put",
            Self::CreateMultipart => "create multipart upload",
            Self::UploadPart => "upload part",
            Self::CompleteMultipart => "complete multipart upload",
            Self::AbortMultipart => "abort multipart upload",
            Self::Get => "get",
            Self::Head => "head",
            Self::List => "list",
            Self::ListMultipart => "list multipart uploads",
            Self::ReadSource => "read segment",
            Self::Prove => "prove",
            Self::Commit => "commit",
            Self::Lease => "lease",
        })
    }
}

/// The kind of thing that went wrong, before any judgement of what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The store answered with an error: see `code` and `http_status`.
    Answered,
    /// A create-only write met an object that is already there.
    AlreadyExists,
    /// A conditional write on an ETag met another one.
    PreconditionFailed,
    /// The object is not there.
    NotFound,
    /// An answer that claims success and does not prove it.
    Unproven,
    /// The request could not be sent or its answer not be read: see `io`.
    Transport,
    /// The TLS handshake or a certificate failed.
    Tls,
    /// A time limit was reached.
    Timeout,
    /// No credentials, or their provider failed.
    Credentials,
    /// The request could not be built.
    Construction,
    /// A local file could not be read: see `io`.
    LocalIo,
    /// The segment changed between its two reads.
    SourceChanged,
    /// The segment is gone.
    SourceGone,
    /// The segment is damaged; see `code` and `offset`.
    SourceDamaged,
    /// The segment is encrypted, or of a format that policy refuses.
    SourceRefused,
    /// Stored bytes do not match their digest.
    Damaged,
    /// Another writer's manifest holds this number with other bytes.
    Conflict,
    /// Another writer holds the lease.
    LeaseLost,
    /// Text from the store does not decode.
    Undecodable,
    /// Anything else.
    Other,
}

/// One failure with every fact a later decision or a human needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The step that failed.
    pub operation: Operation,
    /// What kind of thing went wrong.
    pub kind: FaultKind,
    /// The object's key or the file's path.
    pub key: Option<String>,
    /// HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// The store's error code, or the damage code of a segment.
    pub code: Option<String>,
    /// What the store or the system said, cut at [`TEXT_MAX`].
    pub message: String,
    /// `x-amz-request-id`.
    pub request_id: Option<String>,
    /// `x-amz-id-2`.
    pub extended_request_id: Option<String>,
    /// `Retry-After` or `x-amz-retry-after`, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The I/O error kind or errno name, for transport and local faults.
    pub io: Option<String>,
    /// Byte offset in the file, for damage.
    pub offset: Option<u64>,
}

impl Fault {
    /// A fault with the given step, kind and message, and no further facts.
    #[must_use]
    pub fn new(operation: Operation, kind: FaultKind, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.len() > TEXT_MAX {
            let mut end = TEXT_MAX;
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
        }
        Self {
            operation,
            kind,
            key: None,
            http_status: None,
            code: None,
            message,
            request_id: None,
            extended_request_id: None,
            retry_after_ms: None,
            io: None,
            offset: None,
        }
    }

    /// The same with the key or path it is about.
    #[must_use]
    pub fn at(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A fault of a local file.
    #[must_use]
    pub fn local(operation: Operation, path: &std::path::Path, error: &std::io::Error) -> Self {
        let kind = if error.kind() == std::io::ErrorKind::NotFound {
            FaultKind::SourceGone
        } else {
            FaultKind::LocalIo
        };
        let mut fault =
            Self::new(operation, kind, error.to_string()).at(path.display().to_string());
        fault.io = Some(io_name(error));
        fault
    }
}

impl std::error::Error for Fault {}

/// The stable name of an I/O error: its kind, or the errno where the kind says nothing.
#[must_use]
pub fn io_name(error: &std::io::Error) -> String {
    let errno = error.raw_os_error();
    let named = [
        (rustix::io::Errno::IO, "EIO"),
        (rustix::io::Errno::NFILE, "ENFILE"),
        (rustix::io::Errno::MFILE, "EMFILE"),
    ];
    for (known, name) in named {
        if errno == Some(known.raw_os_error()) {
            return name.to_owned();
        }
    }
    let kind = format!("{:?}", error.kind());
    match errno {
        Some(errno) if kind == "Uncategorized" => format!("errno {errno}"),
        Some(_) | None => kind,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(key) = &self.key {
            write!(f, " {key}")?;
        }
        write!(f, ": {}", self.message)?;
        let mut facts = Vec::new();
        if let Some(status) = self.http_status {
            facts.push(format!("HTTP {status}"));
        }
        if let Some(code) = &self.code {
            facts.push(code.clone());
        }
        if let Some(offset) = self.offset {
            facts.push(format!("offset {offset}"));
        }
        if let Some(id) = &self.request_id {
            facts.push(format!("request {id}"));
        }
        if facts.is_empty() { Ok(()) } else { write!(f, " ({})", facts.join(", ")) }
    }
}
