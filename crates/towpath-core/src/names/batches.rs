//! Names of batches: who gathers, for which key, which batch it became, and who may settle it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{InvalidName, check_text, refuse_separator};

/// The longest batch key, in bytes. Its parts are shorter, but percent-encoding makes them grow.
pub const BATCH_KEY_BYTES_MAX: usize = 2_048;

name!(
    /// What a batcher is called. It stands in keys, in addresses and in the names of settings.
    ///
    /// ```
    /// use towpath_core::names::BatcherName;
    ///
    /// assert!(BatcherName::new("input_contour").is_ok());
    /// assert!(BatcherName::new("a:b").is_err());
    /// ```
    BatcherName,
    "batcher",
    |text| check_batcher(text)
);

name!(
    /// For whom messages are gathered: one chat, one order, one file. Made by [`batch::key_of`](crate::batch::key_of).
    BatchKey,
    "batch key",
    check_batch_key,
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// One batch, from its claim to its end, however often it is tried: the receiver knows a repeat by it.
    BatchId,
    "batch id",
    |_text| Ok::<(), InvalidName>(())
);

name!(
    /// The right to settle a batch. Every claim has its own, so a dispatcher that was too slow can be told from the next one.
    BatchToken,
    "batch token",
    |_text| Ok::<(), InvalidName>(())
);

impl BatcherName {
    /// The batcher that old producers and old workers know.
    pub const INPUT_CONTOUR: &'static str = "input_contour";

    /// Whether it is the one that old producers and old workers know.
    pub fn is_input_contour(&self) -> bool {
        self.as_str() == Self::INPUT_CONTOUR
    }
}

fn check_batcher(text: &str) -> Result<(), InvalidName> {
    // The braces would move the place of its keys in a Cluster.
    for character in [':', '{', '}', '/'] {
        refuse_separator("batcher", text, character)?;
    }
    Ok(())
}

fn check_batch_key(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty { what });
    }
    if text.len() > BATCH_KEY_BYTES_MAX {
        return Err(InvalidName::TooLong { what, bytes: text.len(), max: BATCH_KEY_BYTES_MAX });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(character) => Err(InvalidName::Control { what, code: u32::from(character) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batcher_whose_name_would_break_a_key_or_an_address_is_refused() {
        for name in ["", "a:b", "{a}", "a/b", "a\nb", "x".repeat(257).as_str()] {
            assert!(BatcherName::new(name).is_err(), "{name:?}");
        }
        for name in ["input_contour", "заказы", "a b", "a%b"] {
            assert_eq!(BatcherName::new(name).unwrap().as_str(), name);
        }
        assert!(BatcherName::new("input_contour").unwrap().is_input_contour());
    }

    #[test]
    fn a_batch_key_is_long_enough_for_its_parts_and_has_no_control_characters() {
        assert!(BatchKey::new("я:".repeat(300)).is_ok());
        let refused = BatchKey::new("x".repeat(BATCH_KEY_BYTES_MAX + 1)).unwrap_err();
        assert!(refused.to_string().ends_with("has 2049 bytes: at most 2048 are allowed"), "{refused}");
        assert!(BatchKey::new("a\u{7}b").is_err() && BatchKey::new("").is_err());
    }
}
