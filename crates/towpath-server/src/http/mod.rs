//! The HTTP API: one table of routes, one error body, one shape per thing.
//!
//! A request passes `layers` from the outside in, is read by `extract`, moved into the core's words by `convert`, and answered by
//! the handler of its room. What goes wrong becomes an answer in `error` and nowhere else.

pub(crate) mod app;
pub mod auth;
mod batches;
mod bounds;
mod calls;
pub mod codes;
mod config;
pub(crate) mod convert;
mod dead_letters;
mod doctor;
pub(crate) mod drain;
mod elo;
mod error;
pub(crate) mod extract;
mod functions;
mod health;
mod host;
pub(crate) mod layers;
mod limits;
pub(crate) mod listener;
mod locks;
mod nested;
pub mod openapi;
pub mod pages;
mod probe;
mod request_id;
mod roster;
mod routes;
mod runs;
mod standing;
mod turns;
mod waits;
pub mod wire;
mod workers;
