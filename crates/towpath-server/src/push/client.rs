//! A client that goes nowhere but where the policy lets it: guarded look-ups, no redirects, no proxies.

use std::time::Duration;

use reqwest::Client;

use super::guard::TargetPolicy;
use super::resolver::GuardedResolver;

/// A client for targets under this policy. URLs with addresses in them never reach the resolver: check each with the policy, too.
pub(crate) fn build(policy: &TargetPolicy, connect_time_max: Duration) -> Result<Client, reqwest::Error> {
    super::install_tls();
    let build = || {
        Client::builder()
            .dns_resolver(GuardedResolver(policy.clone()))
            .redirect(reqwest::redirect::Policy::none()) // a redirect could lead inside
            .no_proxy() // the environment must not choose whom we talk to
            .referer(false)
            .connect_timeout(connect_time_max)
            .user_agent(concat!("towpath/", env!("CARGO_PKG_VERSION")))
    };
    build().build().or_else(|error| {
        // A machine without root certificates can still push to plain http targets that the operator allows.
        tracing::warn!(%error, "no root certificates were found: https targets will be refused until they are installed");
        build().tls_certs_only([]).build()
    })
}
