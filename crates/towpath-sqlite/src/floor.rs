//! The bare loop that the store is measured against.
