//! The 512-byte header of a file that MySQL encrypted.

use super::damage::DamageCode;
use super::event::Cursor;

/// Bytes before the ciphertext.
pub(super) const LEN: usize = 512;

/// Where the ciphertext begins, as an offset.
pub(super) const BODY_AT: u64 = 512;

const KEY_PREFIX: &str = "MySQLReplicationKey_";

/// What the header says in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncryptionHeader {
    pub(super) key_id: String,
    pub(super) server_uuid: Option<String>,
}

/// Reads the header, from the magic number on.
pub(super) fn read(bytes: &[u8]) -> Result<EncryptionHeader, (DamageCode, String)> {
    let Some(header) = bytes.get(4..LEN) else {
        let text = format!("{} of the 512 bytes of an encryption header", bytes.len());
        return Err((DamageCode::TornEncryptionHeader, text));
    };
    let bad = |text: &str| (DamageCode::BadEncryptionHeader, text.to_owned());
    let mut cursor = Cursor(header);
    match cursor.u8() {
        Some(1) => {}
        version => return Err(bad(&format!("encryption header of unknown version {version:?}"))),
    }
    let mut key_id = None;
    // Every turn takes at least two bytes off 508, or ends.
    while let Some(field) = cursor.u8() {
        let value = match field {
            0 => break,
            1 => cursor.u8().and_then(|len| cursor.take(usize::from(len))),
            2 => cursor.take(32),
            3 => cursor.take(16),
            other => return Err(bad(&format!("unknown field {other} in the encryption header"))),
        };
        let Some(value) = value else {
            return Err(bad("a field of the encryption header leaves it"));
        };
        if field == 1 {
            key_id = std::str::from_utf8(value).ok().map(str::to_owned);
        }
    }
    let printable = |id: &String| !id.is_empty() && id.bytes().all(|b| b.is_ascii_graphic());
    let key_id =
        key_id.filter(printable).ok_or_else(|| bad("no key id in the encryption header"))?;
    let server_uuid = key_id
        .strip_prefix(KEY_PREFIX)
        .and_then(|rest| rest.rsplit_once('_'))
        .map(|(uuid, _)| uuid.to_owned());
    Ok(EncryptionHeader { key_id, server_uuid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(fields: &[u8]) -> Vec<u8> {
        let mut bytes = b"\xfdbin\x01".to_vec();
        bytes.extend(fields);
        bytes.resize(LEN, 0);
        bytes
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        let code = |bytes: &[u8]| read(bytes).map(|_| ()).map_err(|(code, _)| code);
        assert_eq!(code(&[0; 100]), Err(DamageCode::TornEncryptionHeader));
        assert_eq!(code(&header(&[])), Err(DamageCode::BadEncryptionHeader));
        assert_eq!(code(&header(&[9, 1])), Err(DamageCode::BadEncryptionHeader));
        assert_eq!(code(&header(&[1, 3, 0xff, 0xff, 0xff])), Err(DamageCode::BadEncryptionHeader));
        let mut many = vec![];
        for _ in 0..32 {
            many.extend([3; 17]);
        }
        assert_eq!(code(&header(&many)[..LEN]), Err(DamageCode::BadEncryptionHeader));
        let fine = read(&header(&[1, 4, b'a', b'b', b'_', b'1'])).unwrap();
        assert_eq!((fine.key_id.as_str(), fine.server_uuid), ("ab_1", None));
    }
}
