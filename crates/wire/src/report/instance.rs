//! One pod in a report.

use model::{
    instance::{Instance, Reason, Status},
    invalid::Field,
    name::Message,
    size::{CpuMillis, MemoryMib},
};
use proto::report_deployment_status_request::update::{self, instance};

use crate::{proto, read};

pub(crate) fn read(mut field: Field<'_>, told: &update::Instance) -> Option<Instance> {
    let update::Instance {
        k8s_name,
        address,
        cpu_millicores,
        memory_mib,
        status,
        reason,
        message,
        restarts,
        exit_code,
        zone,
        pod_uid,
        ready,
    } = told;
    let k8s_name = field.field("k8s_name").parse(k8s_name);
    let address = read::some(field.field("address"), address);
    let cpu = read_size(field.field("cpu_millicores"), *cpu_millicores, CpuMillis::new);
    let memory = read_size(field.field("memory_mib"), *memory_mib, MemoryMib::new);
    let status = read_status(field.field("status"), *status);
    let zone = read::some(field.field("zone"), zone);
    let uid = read::some(field.field("pod_uid"), pod_uid);
    let message = Some(message.as_str()).filter(|message| !message.is_empty());
    Some(Instance {
        k8s_name: k8s_name?,
        uid: uid?,
        address: address?,
        zone: zone?,
        cpu: cpu?,
        memory: memory?,
        status: status?,
        ready: ready.unwrap_or(status? == Status::Running),
        reason: Reason::read(reason),
        message: message.map(Message::cut),
        restarts: *restarts,
        exit_code: *exit_code,
    })
}

pub(crate) fn message(seen: &Instance) -> update::Instance {
    let Instance {
        k8s_name,
        uid,
        address,
        zone,
        cpu,
        memory,
        status: is,
        ready,
        reason,
        message,
        restarts,
        exit_code,
    } = seen;
    update::Instance {
        k8s_name: k8s_name.to_string(),
        address: read::text(address.as_ref()),
        cpu_millicores: cpu.map_or(0, |cpu| cpu.get().into()),
        memory_mib: memory.map_or(0, |memory| memory.get().into()),
        status: status(*is).into(),
        reason: read::text(reason.as_ref()),
        message: read::text(message.as_ref()),
        restarts: *restarts,
        exit_code: *exit_code,
        zone: read::text(zone.as_ref()),
        pod_uid: read::text(uid.as_ref()),
        ready: Some(*ready),
    }
}

/// A size that was seen. 0 is one that is not known, and so is one that nothing of ours can have: it is only
/// shown, and a report must not fail over it.
fn read_size<T, E>(
    field: Field<'_>,
    number: i64,
    size: impl FnOnce(i64) -> Result<T, E>,
) -> read::Read<Option<T>> {
    read::natural(field, number).map(|_| size(number).ok())
}

/// An instance of which nothing is said is not known to run.
pub(crate) fn read_status(field: Field<'_>, status: buffa::EnumValue<instance::Status>) -> Option<Status> {
    Some(match read::known(field, status)? {
        instance::Status::STATUS_UNSPECIFIED | instance::Status::STATUS_PENDING => Status::Pending,
        instance::Status::STATUS_RUNNING => Status::Running,
        instance::Status::STATUS_FAILED => Status::Failed,
    })
}

pub(crate) fn status(status: Status) -> instance::Status {
    match status {
        Status::Pending => instance::Status::STATUS_PENDING,
        Status::Running => instance::Status::STATUS_RUNNING,
        Status::Failed => instance::Status::STATUS_FAILED,
    }
}
