//! An agent whose things are all in step.

use std::time::Duration;

use harness::idle::{self, Size};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_do_costs_nothing() {
    idle::nothing_to_do_costs_nothing(Size { deployments: 1000, lasts: Duration::from_mins(1) }).await;
}
