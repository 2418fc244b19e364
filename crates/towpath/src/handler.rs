//! What a worker serves: functions with their options, and the handlers behind them.

use std::future::Future;
use std::marker::PhantomData;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use towpath_core::call::RetryPolicy;
use towpath_core::names::{FunctionKey, FunctionName, InvalidName, LimitScope, RuleName, Scope};
use towpath_core::payload::Payload;
use towpath_core::worker::{FunctionDefinition, FunctionLimits, FunctionRate, PushTarget};

use crate::context::CallContext;
use crate::error::HandlerError;

/// A handler of JSON text, for those who carry calls elsewhere. Typed handlers are closures: see
/// [`WorkerBuilder::function`](crate::WorkerBuilder::function).
#[async_trait]
pub trait RawHandler: Send + Sync {
    /// Runs one delivery of a call; [`CallContext::params_raw`] are its params. The future is dropped at the call's deadline.
    async fn run(&self, ctx: CallContext) -> Result<Payload, HandlerError>;
}

/// A closure as a handler.
pub(crate) struct Typed<F, P, R> {
    handler: F,
    types: PhantomData<fn(P) -> R>,
}

impl<F, P, R> Typed<F, P, R> {
    pub(crate) fn new(handler: F) -> Self {
        Self { handler, types: PhantomData }
    }
}

#[async_trait]
impl<F, P, R, Fut> RawHandler for Typed<F, P, R>
where
    F: Fn(P, CallContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, HandlerError>> + Send,
    P: DeserializeOwned + Send,
    R: Serialize + Send,
{
    async fn run(&self, ctx: CallContext) -> Result<Payload, HandlerError> {
        let params: P = serde_json::from_slice(ctx.params_raw().as_bytes()).map_err(|error| {
            HandlerError::fatal("invalid_params", format!("the params of '{}' do not fit: {error}", ctx.function_name()))
        })?;
        let function = ctx.function_name().clone();
        let result = (self.handler)(params, ctx).await?;
        let text = serde_json::to_vec(&result).map_err(|error| {
            HandlerError::fatal("invalid_result", format!("the result of '{function}' cannot be written as JSON: {error}"))
        })?;
        Ok(Payload::from_json(text))
    }
}

/// A function as a worker offers it.
///
/// ```
/// use serde_json::json;
/// use towpath::{FunctionLimits, FunctionOptions};
///
/// let options = FunctionOptions::new("resize")
///     .description("Makes an image smaller")
///     .parameters(json!([{"name": "width", "type": "integer", "required": true}]))
///     .limits(FunctionLimits { max_concurrent: Some(8), ..FunctionLimits::default() })
///     .rate("default") // the policy of scope `resize`: `towpath limit put resize --rule r=gcra:100/60s`
///     .concurrency(2);
/// ```
#[derive(Clone, Debug)]
pub struct FunctionOptions {
    name: String,
    scope: Option<String>,
    description: Option<String>,
    parameters: Option<Payload>,
    retry: RetryPolicy,
    limits: FunctionLimits,
    rate_policy: Option<String>,
    rate_scope: Option<String>,
    /// Carried along only: a worker that serves a function on behalf of its target must not erase the target.
    target: Option<PushTarget>,
    pub(crate) concurrency: Option<u32>,
    /// It was defined by somebody other than this worker.
    pub(crate) is_defined_elsewhere: bool,
}

impl FunctionOptions {
    /// A function of this name that everyone may call, with all defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scope: None,
            description: None,
            parameters: None,
            retry: RetryPolicy::default(),
            limits: FunctionLimits::default(),
            rate_policy: None,
            rate_scope: None,
            target: None,
            concurrency: None,
            is_defined_elsewhere: false,
        }
    }

    /// The function of this full name.
    pub fn for_key(key: &FunctionKey) -> Self {
        Self::new(key.name.as_str()).scope(key.scope.as_str())
    }

    /// The function as it is defined elsewhere: what a server does that runs calls on behalf of others. Parameter definitions that cannot be
    /// compiled do not keep the worker from starting; its handler gets params as they came then.
    pub fn for_definition(definition: &FunctionDefinition) -> Self {
        let mut options = Self::for_key(&definition.key);
        options.description.clone_from(&definition.description);
        options.parameters.clone_from(&definition.parameters);
        options.target.clone_from(&definition.target);
        options.is_defined_elsewhere = true;
        options.retry(definition.retry.clone()).limits(definition.limits.clone())
    }

    /// Where it is known. Default: everywhere.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// One sentence for people.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// What it takes: an array of `{name, type, required, default, description}`, or a JSON Schema. See [`params`](crate::params).
    #[must_use]
    pub fn parameters(self, parameters: impl Into<Value>) -> Self {
        self.parameters_raw(Payload::from_json(parameters.into().to_string()))
    }

    /// What it takes, as JSON text.
    #[must_use]
    pub fn parameters_raw(mut self, parameters: Payload) -> Self {
        self.parameters = Some(parameters);
        self
    }

    /// How its calls are retried. Default: three attempts, two seconds apart.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// What it can take, over all workers.
    #[must_use]
    pub fn limits(mut self, limits: FunctionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Every delivery takes from this policy, over all workers: a call waits in the queue until it is its turn. What is limited is the
    /// function's own name, unless [`rate_scope`](Self::rate_scope) says something else.
    #[must_use]
    pub fn rate(mut self, policy: impl Into<String>) -> Self {
        self.rate_policy = Some(policy.into());
        self
    }

    /// What the policy limits: functions that name the same scope share its limit.
    #[must_use]
    pub fn rate_scope(mut self, scope: impl Into<String>) -> Self {
        self.rate_scope = Some(scope.into());
        self
    }

    /// How many of its calls this worker runs at once. Default: as many as the worker runs in all.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    pub(crate) fn definition(&self) -> Result<FunctionDefinition, InvalidName> {
        let scope = self.scope.as_ref().map_or_else(|| Ok(Scope::global()), Scope::new)?;
        let mut definition = FunctionDefinition::new(FunctionKey { scope, name: FunctionName::new(&self.name)? });
        definition.description.clone_from(&self.description);
        definition.parameters.clone_from(&self.parameters);
        definition.retry = self.retry.clone();
        definition.limits = self.limits.clone();
        if let Some(policy) = &self.rate_policy {
            let scope = self.rate_scope.as_ref().map(LimitScope::new).transpose()?;
            definition.limits.rate = Some(FunctionRate { policy: RuleName::new(policy)?, scope });
        }
        definition.target.clone_from(&self.target);
        Ok(definition)
    }
}
