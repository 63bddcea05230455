//! The way to the control plane, which is not taken before it is needed.

use std::sync::Arc;

use anyhow::Context as _;
use runtime::tls::{Roots, client_config};
use wire::{
    auth::Bearer,
    client::{Control, Dial},
    config::ControlPlaneConfig,
    request::Caller,
};

use crate::process::Process;

/// A client of the control plane that the settings name.
pub(crate) fn connect(
    config: &ControlPlaneConfig,
    caller: Caller,
    process: &Process,
) -> anyhow::Result<Control> {
    let urls = config.urls.iter().map(|url| url.parse()).collect::<Result<Vec<http::Uri>, _>>()?;
    let roots = config.roots.clone().map_or(Roots::Mozilla, Roots::File);
    let dial = Arc::new(Dial::new(Some(client_config(&roots).context("control.roots")?)));
    let Process { clock, random, .. } = process;
    Ok(Control::new(urls, &bearer(config)?, caller, dial, clock.clone(), random.fork())?)
}

/// Has a client present the token of whichever settings it is given next.
pub(crate) fn presenting(
    client: &Control,
    before: &ControlPlaneConfig,
) -> impl FnMut(&ControlPlaneConfig) -> anyhow::Result<()> + use<> {
    let (client, mut last) = (client.clone(), before.token.clone());
    move |new| {
        if new.token.expose() != last.expose() {
            client.present(&bearer(new)?);
            last = new.token.clone();
            tracing::info!("another token is presented from now on");
        }
        Ok(())
    }
}

/// The token that the settings name.
fn bearer(config: &ControlPlaneConfig) -> anyhow::Result<Bearer> {
    Bearer::parse(config.token.expose()).context("control.token is no token of ours")
}
