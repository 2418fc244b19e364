//! Signatures in the form of Standard Webhooks: a target can tell that a call comes from this server and was not changed.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

const PREFIX: &str = "whsec_";
const BYTES_MIN: usize = 16;
const BYTES_MADE: usize = 32;

/// What signatures are made with. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

/// Text that is no secret. The text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a webhook secret is 'whsec_' and the base64 of at least 16 random bytes")]
pub struct InvalidSecret;

impl FromStr for WebhookSecret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(InvalidSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidSecret)?;
        if bytes.len() < BYTES_MIN { Err(InvalidSecret) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

impl WebhookSecret {
    /// A new secret from the system's source of randomness.
    pub(crate) fn generate() -> io::Result<Self> {
        let mut bytes = vec![0; BYTES_MADE];
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        random.fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
        Ok(Self(bytes))
    }

    fn to_text(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The `webhook-signature` header: one signature per secret, so that secrets can be changed one side after the other.
pub(crate) fn signature(secrets: &[WebhookSecret], id: &str, timestamp: i64, body: &[u8]) -> String {
    secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

/// Reads the secret kept in a file, or makes one and keeps it there, readable by its owner only.
pub(crate) fn keep_secret(path: &Path) -> io::Result<WebhookSecret> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let mode = std::fs::metadata(path)?.permissions().mode();
            if mode & 0o077 != 0 {
                let message =
                    format!("{} can be read by others (mode {:o}): chmod 600 it, or better replace it", path.display(), mode & 0o777);
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
            }
            let refused = |invalid| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {invalid}", path.display()));
            text.parse().map_err(|invalid: InvalidSecret| refused(invalid))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = WebhookSecret::generate()?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(format!("{}\n", secret.to_text()).as_bytes())?;
            file.sync_all()?;
            Ok(secret)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_published_example() {
        let secret: WebhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let signed = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_give_two_signatures_so_that_one_can_be_replaced() {
        let secrets = [WebhookSecret::generate().unwrap(), WebhookSecret::generate().unwrap()];
        let header = signature(&secrets, "id", 1, b"body");
        let parts: Vec<&str> = header.split(' ').collect();
        assert_eq!(parts.len(), 2);
        assert_ne!(parts[0], parts[1]);
    }

    #[test]
    fn a_kept_secret_is_found_again_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("webhook-secret");
        let made = keep_secret(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(keep_secret(&path).unwrap(), made);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(keep_secret(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_repeated() {
        for text in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!!"] {
            assert_eq!(text.parse::<WebhookSecret>(), Err(InvalidSecret), "{text}");
        }
        assert_eq!(format!("{:?}", WebhookSecret::generate().unwrap()), "WebhookSecret(..)");
    }
}
