//! What a batcher's deliveries are signed with: named by reference, read when they are needed, never shown.

use crate::push::WebhookSecret;

/// The secrets that the references name. The text of an error names the reference, never what it leads to.
pub(super) fn read(references: &[String]) -> Result<Vec<WebhookSecret>, String> {
    references.iter().map(|reference| read_one(reference)).collect()
}

fn read_one(reference: &str) -> Result<WebhookSecret, String> {
    let text = match reference.split_once(':') {
        Some(("env", name)) => {
            std::env::var(name).map_err(|_| format!("the secret '{reference}' is not set in the server's environment"))?
        }
        // A few bytes, and rarely: not worth a thread.
        Some(("file", path)) => {
            std::fs::read_to_string(path).map_err(|error| format!("the secret '{reference}' cannot be read: {error}"))?
        }
        _ => return Err("a secret is named as env:NAME or file:PATH".to_owned()),
    };
    text.trim().parse().map_err(|invalid| format!("the secret '{reference}' cannot be used: {invalid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_where_it_is_and_never_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let reference = format!("file:{}", path.display());
        assert_eq!(read(&[reference.clone(), reference.clone()]).unwrap().len(), 2);
        std::fs::write(&path, "hunter2").unwrap();
        let error = read(&[reference]).unwrap_err();
        assert!(error.contains("file:") && !error.contains("hunter2"), "{error}");
        assert!(read(&["env:TOWPATH_NO_SUCH_SECRET".to_owned()]).unwrap_err().contains("not set"));
    }
}
