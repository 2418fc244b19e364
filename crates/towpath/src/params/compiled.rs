//! The compiled parameters of functions, kept from call to call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_core::call::Failure;
use towpath_core::names::FunctionKey;
use towpath_core::payload::Payload;
use towpath_core::store::PrepareParams;
use towpath_core::worker::FunctionDefinition;

use super::Parameters;

/// Compiles the parameters of each function once per definition: compiling a schema takes a thousand times longer than a check with it.
#[derive(Debug, Default)]
pub(crate) struct CompiledParameters(Mutex<HashMap<FunctionKey, Compiled>>);

#[derive(Debug)]
struct Compiled {
    from: Option<Payload>,
    parameters: Arc<Parameters>,
}

impl CompiledParameters {
    pub(crate) fn of(&self, definition: &FunctionDefinition) -> Arc<Parameters> {
        if let Some(known) = self.lock().get(&definition.key).filter(|known| known.from == definition.parameters) {
            return Arc::clone(&known.parameters);
        }
        let parameters = Arc::new(Parameters::of(definition));
        let compiled = Compiled { from: definition.parameters.clone(), parameters: Arc::clone(&parameters) };
        self.lock().insert(definition.key.clone(), compiled);
        parameters
    }

    pub(crate) fn forget(&self, function: &FunctionKey) {
        self.lock().remove(function);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FunctionKey, Compiled>> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PrepareParams for CompiledParameters {
    fn prepare(&self, definition: &FunctionDefinition, params: &Payload) -> Result<Payload, Failure> {
        self.of(definition).prepare(&definition.key, params)
    }
}

#[cfg(test)]
mod tests {
    use towpath_core::names::FunctionName;

    use super::*;

    fn definition(parameters: &'static str) -> FunctionDefinition {
        let mut definition = FunctionDefinition::new(FunctionKey::global(FunctionName::new("add").unwrap()));
        definition.parameters = Some(Payload::from_json(parameters));
        definition
    }

    fn prepare(parameters: &'static str, params: &'static str) -> Result<String, Failure> {
        let prepared = CompiledParameters::default().prepare(&definition(parameters), &Payload::from_json(params));
        prepared.map(|params| params.as_str().to_owned())
    }

    #[test]
    fn params_that_fit_are_filled_in() {
        assert_eq!(prepare(r#"[{"name":"a"},{"name":"b","default":1}]"#, r#"{"a":1e400}"#).unwrap(), r#"{"a":1e400,"b":1}"#);
    }

    #[test]
    fn params_that_do_not_fit_are_a_failure_that_names_each_of_them() {
        let failure = prepare(r#"[{"name":"a","type":"integer","required":true},{"name":"b","required":true}]"#, "{}").unwrap_err();
        assert_eq!(failure.code, "invalid_params");
        let expected = "the parameters do not fit 'add': parameter 'a': expected an integer, got nothing; parameter 'b': expected a value, got nothing";
        assert_eq!(failure.message, expected);
        assert!(failure.details.unwrap().as_str().contains(r#""parameter":"b""#));
    }

    #[test]
    fn definitions_that_cannot_be_compiled_leave_the_params_as_they_came() {
        assert_eq!(prepare(r#"[{"name":"a","type":"text"}]"#, "[1, 2]").unwrap(), "[1, 2]");
    }

    #[test]
    fn a_changed_definition_is_compiled_again() {
        let compiled = CompiledParameters::default();
        let first = compiled.of(&definition("[]"));
        assert!(Arc::ptr_eq(&first, &compiled.of(&definition("[]"))));
        assert!(!Arc::ptr_eq(&first, &compiled.of(&definition(r#"[{"name":"a"}]"#))));
    }
}
