//! Cells that many rows have: where something is, who caused a change, and why an apply fails.

use model::{
    cluster::ApplyError,
    id::ChangeId,
    name::{Message, Placement, RegionKey},
    time::Millis,
};

use crate::{
    Result, Value,
    value::{Cells, text},
};

/// What a change is put down to: the request it follows from, and when that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    pub change: Option<ChangeId>,
    pub at: Millis,
}

impl Cause {
    pub(crate) fn change_cell(&self) -> Value {
        self.change.as_ref().map(text).into()
    }
}

pub(crate) fn placement_cells(Placement { region, shard }: &Placement) -> [Value; 3] {
    [text(&region.platform), text(&region.name), text(shard)]
}

pub(crate) fn decode(cells: &mut Cells<'_>) -> Result<Placement> {
    let region = RegionKey { platform: cells.parse()?, name: cells.parse()? };
    Ok(Placement { region, shard: cells.parse()? })
}

/// Reason, message and since.
pub(crate) fn apply_error_cells(error: Option<&ApplyError>) -> [Value; 3] {
    let Some(ApplyError { reason, message, since }) = error else {
        return [Value::Null, Value::Null, Value::Null];
    };
    [reason.as_str().into(), message.as_str().into(), since.0.into()]
}

pub(crate) fn decode_apply_error(cells: &mut Cells<'_>) -> Result<Option<ApplyError>> {
    let (reason, message) = (cells.parse_some()?, cells.take::<Option<String>>()?);
    let since = cells.take::<Option<i64>>()?;
    Ok(match (reason, message, since) {
        (Some(reason), Some(message), Some(since)) => {
            Some(ApplyError { reason, message: Message::cut(&message), since: Millis(since) })
        }
        _ => None,
    })
}
