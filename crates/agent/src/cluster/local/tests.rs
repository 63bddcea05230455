//! The parts of a local cluster together, as far as only it has them.
