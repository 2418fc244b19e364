//! Tests of your own functions: in memory, with a clock that you move.
