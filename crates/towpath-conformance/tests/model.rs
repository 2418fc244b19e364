//! The model obeys the law that it states.

use towpath_conformance::backend::ModelBackend;

towpath_conformance::suite!(ModelBackend);
