//! What a store's error codes mean.

use super::cause::Cause;
use super::rule::Scope::{Destination, NeedsCanary, Segment};
use super::rule::{Classified, Grace, permanent, transient};

/// Codes that mean the same.
pub(super) struct Row {
    pub(super) codes: &'static [&'static str],
    pub(super) rule: Classified,
}

const fn row(codes: &'static [&'static str], rule: Classified) -> Row {
    Row { codes, rule }
}

/// What begins every code that a store passes on from its key service.
const KMS: &str = "KMS.";

/// How the table names the codes that begin with [`KMS`] and are not in it.
pub(super) const OTHER_KMS: &str = "KMS.*";

/// The table. A code stands in it once.
pub(super) const CODES: &[Row] = &[
    row(
        &["SlowDown", "SlowDownRead", "SlowDownWrite", "Busy", "ServiceUnavailable"],
        transient(Destination, Cause::Throttled).throttling(),
    ),
    row(
        &[
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequests",
            "TooManyRequestsException",
            "RequestLimitExceeded",
            "BandwidthLimitExceeded",
            "ProvisionedThroughputExceededException",
            "TransactionInProgressException",
            "LimitExceededException",
            "PriorRequestNotComplete",
            "EC2ThrottledException",
            "KMS.ThrottlingException",
        ],
        transient(Destination, Cause::Throttled).throttling(),
    ),
    row(&["InternalError"], transient(Segment, Cause::ServerError)),
    row(&["RequestTimeout", "RequestTimeoutException"], transient(Segment, Cause::Timeout)),
    row(
        &["RequestTimeTooSkewed", "RequestExpired"],
        transient(Destination, Cause::ClockSkew).tries(3),
    ),
    row(
        &["SignatureDoesNotMatch", "InvalidSignatureException"],
        transient(Destination, Cause::Auth).tries(2).grace(Grace::Auth),
    ),
    row(
        &["ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"],
        transient(Destination, Cause::TokenExpired).tries(3).grace(Grace::Auth),
    ),
    row(
        &["AccessDenied", "AccessDeniedException", "UnauthorizedAccess"],
        permanent(NeedsCanary, Cause::AccessDenied).grace(Grace::Auth),
    ),
    row(
        &[
            "InvalidAccessKeyId",
            "InvalidSecurity",
            "UnrecognizedClientException",
            "MissingAuthenticationToken",
            "AuthFailure",
            "CredentialsNotSupported",
        ],
        permanent(Destination, Cause::Auth).grace(Grace::Auth),
    ),
    row(
        &["AllAccessDisabled", "AccountProblem", "NotSignedUp", "InvalidPayer", "OptInRequired"],
        permanent(Destination, Cause::Account),
    ),
    row(&["NoSuchBucket"], permanent(Destination, Cause::NoBucket).grace(Grace::Auth)),
    row(
        &["InvalidBucketName", "InvalidBucketState", "NoSuchAccessPoint"],
        permanent(Destination, Cause::NoBucket),
    ),
    row(
        &[
            "PermanentRedirect",
            "PermanentRedirectControlError",
            "IllegalLocationConstraintException",
            "AuthorizationHeaderMalformed",
            "InvalidRegion",
            "IncorrectEndpoint",
            "EndpointNotFound",
        ],
        permanent(Destination, Cause::WrongRegion),
    ),
    row(&["TemporaryRedirect", "Redirect"], transient(Destination, Cause::Redirect)),
    row(
        &[
            "BadDigest",
            "XAmzContentSHA256Mismatch",
            "XAmzContentChecksumMismatch",
            "IncompleteBody",
            "BadChecksum",
        ],
        transient(NeedsCanary, Cause::Digest).tries(3),
    ),
    row(
        &[
            "InvalidDigest",
            "InvalidRequest",
            "InvalidArgument",
            "MalformedXML",
            "MissingSecurityHeader",
            "UnexpectedContent",
            "InvalidEncryptionAlgorithmError",
            "InvalidStorageClass",
            "InvalidTag",
            "MissingContentLength",
        ],
        permanent(NeedsCanary, Cause::BadRequest),
    ),
    row(
        &["RequestHeaderSectionTooLarge", "InvalidHostHeader", "InvalidHTTPMethod"],
        permanent(Destination, Cause::BadRequest),
    ),
    row(
        &["NotImplemented", "MethodNotAllowed", "UnsupportedArgument", "UnsupportedSignature"],
        permanent(Destination, Cause::Capability),
    ),
    row(&["EntityTooLarge", "MaxMessageLengthExceeded"], permanent(Segment, Cause::TooLarge)),
    row(
        &["EntityTooSmall", "InvalidPart", "InvalidPartOrder", "NoSuchUpload", "TooManyParts"],
        transient(Segment, Cause::MultipartLost).tries(2),
    ),
    row(
        &[
            "KeyTooLongError",
            "InvalidURI",
            "MetadataTooLarge",
            "XMinioInvalidObjectName",
            "XMinioObjectExistsAsDirectory",
            "XMinioParentIsObject",
        ],
        permanent(Segment, Cause::BadKey),
    ),
    row(
        &[
            "KMS.InternalException",
            "KMS.KMSInternalException",
            "KMS.DependencyTimeoutException",
            "KMS.KeyUnavailableException",
        ],
        transient(Destination, Cause::Kms),
    ),
    row(
        &[
            "KMS.DisabledException",
            "KMS.NotFoundException",
            "KMS.KMSInvalidStateException",
            "KMS.InvalidKeyUsageException",
            "KMS.InvalidStateException",
            "KMS.UnrecognizedClientException",
            "KMS.OptInRequired",
            OTHER_KMS,
        ],
        permanent(Destination, Cause::Kms),
    ),
    row(&["PreconditionFailed"], transient(Segment, Cause::Conflict).tries(3)),
    row(&["ConditionalRequestConflict"], transient(Segment, Cause::Contention)),
    row(
        &["OperationAborted", "RestoreAlreadyInProgress"],
        transient(Destination, Cause::Contention),
    ),
    row(&["InvalidObjectState"], permanent(Segment, Cause::ColdStorage)),
    row(
        &[
            "ObjectLockConfigurationNotFoundError",
            "NoSuchObjectLockConfiguration",
            "InvalidRetentionPeriod",
        ],
        permanent(Destination, Cause::ObjectLock),
    ),
    row(
        &[
            "QuotaExceeded",
            "XMinioAdminBucketQuotaExceeded",
            "XMinioStorageFull",
            "InsufficientStorage",
            "cap_exceeded",
            "TotalStorageLimitExceeded",
        ],
        permanent(Destination, Cause::Quota),
    ),
    row(
        &["NoSuchKey", "BucketAlreadyExists", "BucketAlreadyOwnedByYou"],
        permanent(NeedsCanary, Cause::Unknown),
    ),
];

/// What a code means, if it is known.
pub(super) fn find(code: &str) -> Option<Classified> {
    let named = |code: &str| CODES.iter().find(|row| row.codes.contains(&code));
    let row = named(code).or_else(|| code.starts_with(KMS).then(|| named(OTHER_KMS)).flatten());
    row.map(|row| row.rule)
}
