//! The model obeys the law that it states.

use towpath_conformance::backend::ModelBackend;

towpath_conformance::suite!(ModelBackend);

towpath_conformance::differential!(ModelBackend, seeds = 200, operations = 300);

towpath_conformance::limits_differential!(ModelBackend, operations = 12_000);
towpath_conformance::old_callers_suite!(ModelBackend);
towpath_conformance::batches_suite!(ModelBackend);
towpath_conformance::runs_suite!(ModelBackend);
towpath_conformance::runs_differential!(ModelBackend, seeds = 20, operations = 300);

towpath_conformance::lock_differential!(ModelBackend, OldCallers::None, seeds = 100, operations = 200);
towpath_conformance::lock_differential!(ModelBackend, OldCallers::Some, seeds = 100, operations = 200);

towpath_conformance::batches_differential!(ModelBackend, seeds = 100, operations = 300);

towpath_conformance::batch_histories!(ModelBackend, 25 of 700);
towpath_conformance::histories!(ModelBackend, locks = 20 of 3_000, permits = 8 of 2_500);
towpath_conformance::mixed_fleet_histories!(ModelBackend, 20 of 3_000);
