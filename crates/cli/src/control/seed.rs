//! `krane control seed`: rows to try things with, on the store directly, while there is no API.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Args;
use control::{
    config::ControlConfig,
    seed::{self, Wanted},
};
use model::{
    name::{Placement, RegionChoice},
    size::Replicas,
};

use super::Opened;

const EXAMPLES: &str = "Examples:
  krane control seed --sample
  krane control seed --sample --region aws/us-east-1 --replicas 3";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Seed {
    /// A workspace with one deployment of the image krane/sample, a route to it, and a sentinel in each place
    #[arg(long, required = true)]
    sample: bool,
    /// Where it shall run; a shard can follow, as in aws/us-east-1:b
    #[arg(long, value_name = "REGION[:SHARD]", default_values = ["local/eu", "local/us"])]
    region: Vec<RegionChoice>,
    /// How many instances in each place
    #[arg(long, default_value_t = 2)]
    replicas: u32,
}

impl Seed {
    pub(super) async fn run(&self, opened: &Opened, config: &ControlConfig) -> anyhow::Result<()> {
        let Opened { store, clock, random, .. } = opened;
        let place = |choice: &RegionChoice| {
            let RegionChoice { region, shard } = choice.clone();
            region.shard(shard.unwrap_or_default())
        };
        let places: Vec<Placement> = self.region.iter().map(place).collect();
        let replicas = Replicas::new(self.replicas.into()).context("--replicas")?;
        let key = control::keys::newest(config, random)?;
        let wanted = Wanted { places: &places, replicas, key: &key };
        let written = seed::sample(store, clock, random, &wanted).await;
        let is_new = written.context("the sample cannot be written")?;
        let said = if is_new { "is written" } else { "was there before" };
        Ok(writeln!(std::io::stdout(), "{} {said}", seed::deployment_id())?)
    }
}
