//! Deleting needs proof: whatever an agent may wrongly believe, no object of ours goes, be it one or a thousand; and
//! whatever has a tombstone goes, and nothing with it.
//!
//! Counted in the API server's audit log and by the uids of what is there, never in our own numbers.

#[path = "deleting/absence.rs"]
mod absence;
#[path = "deleting/elsewhere.rs"]
mod elsewhere;
#[path = "deleting/faults.rs"]
mod faults;
#[path = "deleting/scene.rs"]
mod scene;
#[path = "deleting/stock.rs"]
mod stock;
#[path = "deleting/tombstones.rs"]
mod tombstones;

use self::scene::Scene;

/// Every cause in turn against the same objects. From one to the next the agent is back in step, but for the last two:
/// after them the history is another.
async fn nothing_goes(size: u128) {
    let mut scene = Box::pin(Scene::set(size)).await;
    faults::an_init_that_is_cut(&mut scene).await;
    faults::not_found(&mut scene).await;
    faults::errors(&mut scene).await;
    elsewhere::wrong_region(&mut scene).await;
    elsewhere::wrong_shard(&mut scene).await;
    absence::an_empty_database(&mut scene).await;
    absence::a_foreign_database(&mut scene).await;
    let mut scene = absence::a_history_that_was_overtaken(scene).await;
    absence::an_older_backup(&mut scene).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_needs_proof() {
    tokio::join!(nothing_goes(1), nothing_goes(5), nothing_goes(11));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_needs_proof_with_a_thousand() {
    Box::pin(nothing_goes(1000)).await;
}
