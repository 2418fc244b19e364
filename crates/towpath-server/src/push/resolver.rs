//! Looking up names, with the guard between the answer and the connection. What is checked here is what is connected to, so a name
//! that leads elsewhere a moment later gains nothing.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard::TargetPolicy;

/// A resolver that forgets addresses the policy does not allow.
pub(super) struct GuardedResolver(pub(super) TargetPolicy);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> = found.iter().copied().filter(|addr| policy.allows_address(&host, addr.ip())).collect();
            if allowed.is_empty() && !found.is_empty() {
                let message = format!("'{host}' leads to addresses inside only: allow it with --allow-target if that is meant");
                return Err(message.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(policy: TargetPolicy, name: &str) -> Result<usize, String> {
        let name: Name = name.parse().unwrap();
        GuardedResolver(policy).resolve(name).await.map(Iterator::count).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_leads_nowhere_unless_it_is_allowed() {
        let refused = found(TargetPolicy::default(), "localhost").await;
        assert!(refused.as_ref().is_err_and(|error| error.contains("--allow-target")), "{refused:?}");
        let allowed = TargetPolicy::new(vec!["localhost".parse().unwrap()], false);
        assert!(found(allowed, "localhost").await.is_ok_and(|count| count > 0));
    }
}
