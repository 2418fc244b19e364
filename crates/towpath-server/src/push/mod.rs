//! Function push: calls of a function with a `target` are posted there, and the response is the result.
//!
//! `guard` says where the server may post, `sign` proves to the target who posts, `post` makes one request and reads its answer,
//! `supervisor` keeps one worker per target.

pub(crate) mod client;
mod guard;
mod post;
mod resolver;
mod sign;
mod supervisor;

pub use guard::{AllowedTarget, InvalidTarget, TargetPolicy, TargetRefused};
pub use sign::{InvalidSecret, WebhookSecret};

pub(crate) use post::Poster;
pub(crate) use sign::{keep_secret, signature};
pub(crate) use supervisor::{KIND, Pushed, Supervisor};

/// Chooses the implementation of TLS for the whole process. Doing it again changes nothing.
pub fn install_tls() {
    // An error says that one was chosen before, which is as good.
    let _chosen_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
