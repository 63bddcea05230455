//! Which control plane a command speaks to.

use clap::Args;

use super::{
    Session,
    client::Client,
    context::{ContextFile, Entry},
};

#[derive(Args, Default)]
pub(crate) struct Access {
    /// The context to use, instead of `KRANE_URL` with `KRANE_TOKEN`, or the one in use
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl Access {
    /// The control plane, and what is known of it.
    pub(crate) fn open(&self, session: &Session) -> anyhow::Result<(Client, Entry)> {
        let file = ContextFile::find(&session.environment)?;
        let entry = Entry::choose(&file, &session.environment, self.context.as_deref())?;
        Ok((Client::new(&entry)?, entry))
    }
}
