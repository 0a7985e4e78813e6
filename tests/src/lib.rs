//! Scenario tests on real interfaces, and the conformance cases.
