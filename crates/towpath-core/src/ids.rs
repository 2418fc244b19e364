//! New ids. They come from an injected source, so that a random seed reproduces a whole history.

use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::names::{CallId, WorkerId};

/// Where new ids come from. Two ids from one source, or from two, are never equal.
pub trait Ids: Debug + Send + Sync {
    /// An id for a new call.
    fn call_id(&self) -> CallId;
    /// An id for a worker that starts.
    fn worker_id(&self) -> WorkerId;
}

/// One delivery of a call to a worker. The number only rises, so an older delivery can be told from a newer one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeliveryId {
    /// The call that was delivered.
    pub call_id: CallId,
    /// Which delivery of it this is; the first is 1.
    pub number: u64,
}

/// Text that is no delivery id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a delivery id: use the text that the claim gave")]
pub struct InvalidDeliveryId(String);

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.call_id)
    }
}

impl From<DeliveryId> for String {
    fn from(id: DeliveryId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for DeliveryId {
    type Error = InvalidDeliveryId;

    fn try_from(text: String) -> Result<Self, InvalidDeliveryId> {
        let parts = text.split_once('-').and_then(|(number, call_id)| {
            let number = number.parse::<u64>().ok()?;
            Some(Self { call_id: CallId::new(call_id).ok()?, number })
        });
        parts.ok_or(InvalidDeliveryId(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_id_survives_its_text_even_with_dashes_in_the_call_id() {
        let id = DeliveryId { call_id: CallId::new("call-12-ab").unwrap(), number: 7 };
        assert_eq!(id.to_string(), "7-call-12-ab");
        assert_eq!(DeliveryId::try_from(id.to_string()), Ok(id));
        for text in ["", "7", "-1-x", "x-y", "99999999999999999999-x", "7-"] {
            assert!(DeliveryId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
