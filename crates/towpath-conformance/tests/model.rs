//! The model obeys the law that it states.

use towpath_conformance::backend::ModelBackend;

towpath_conformance::suite!(ModelBackend);

towpath_conformance::differential!(ModelBackend, seeds = 200, operations = 300);

towpath_conformance::old_callers_suite!(ModelBackend);
