//! What the API server knows of the fields of an object: which belong to one writer, and which to many.

use std::fmt;

use serde_json::Value;

use super::Type;

/// What the API server knows of an object's fields.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    BuiltIn {
        is_service: bool,
    },
    /// Every list and every selector is one writer's as a whole, and what is stored is what was sent.
    Custom,
}

impl Shape {
    /// By what the API calls the object.
    pub(crate) fn of(kind: &Value) -> Shape {
        if *kind == Type::CiliumNetworkPolicy.kind() {
            Shape::Custom
        } else {
            Shape::BuiltIn { is_service: *kind == Type::Service.kind() }
        }
    }

    /// What tells the elements of a list apart, if they belong to many writers.
    pub(crate) fn merge_keys(self, list: &str) -> Option<&'static [&'static str]> {
        let Shape::BuiltIn { is_service } = self else { return None };
        match list {
            "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" => Some(&["name"]),
            "volumeMounts" => Some(&["mountPath"]),
            "ports" if is_service => Some(&["port", "protocol"]),
            "ports" => Some(&["containerPort", "protocol"]),
            "topologySpreadConstraints" => Some(&["topologyKey", "whenUnsatisfiable"]),
            "ownerReferences" => Some(&["uid"]),
            _ => None,
        }
    }

    /// Whether a map belongs to one writer as a whole.
    pub(crate) fn is_atomic(self, map: &str) -> bool {
        match self {
            Shape::BuiltIn { .. } => {
                ["selector", "labelSelector", "namespaceSelector", "nodeSelector", "scaleTargetRef"]
                    .contains(&map)
            }
            Shape::Custom => ["endpointSelector", "nodeSelector"].contains(&map),
        }
    }

    /// Whether a value says what its absence says too, so that the API server does not keep it.
    pub(crate) fn is_dropped(self, path: &Path<'_>, value: &Value) -> bool {
        let (parent, field) = (path.up.map_or("", Path::name), path.name());
        match (self, value) {
            (_, Value::Null) => true,
            (Shape::Custom, _) => false,
            (_, Value::Array(list)) => list.is_empty(),
            // An empty map is no map; an empty choice, like that of a volume's source, is still one.
            (_, Value::Object(map)) => {
                map.is_empty() && ["labels", "annotations", "data", "limits", "requests"].contains(&field)
            }
            (_, Value::String(text)) => text.is_empty() && (parent, field) == ("env", "value"),
            (_, Value::Bool(is)) => {
                !is && ["hostNetwork", "publishNotReadyAddresses", "readOnly"].contains(&field)
            }
            (_, Value::Number(number)) => {
                number.as_i64() == Some(0) && ["initialDelaySeconds", "minReadySeconds"].contains(&field)
            }
        }
    }

    /// Whether the API server puts this into what we sent without it.
    pub(crate) fn is_default(self, path: &Path<'_>, name: &str, value: &Value) -> bool {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        let is_icmp = matches!(self, Shape::Custom) && path.name() == "fields" && name == "family";
        is_empty || (is_icmp && value == "IPv4")
    }

    pub(crate) fn is_quantity(self, path: &Path<'_>) -> bool {
        let Shape::BuiltIn { .. } = self else { return false };
        let parent = path.up.map_or("", Path::name);
        ["limits", "requests"].contains(&parent)
            || ["sizeLimit", "averageValue"].contains(&path.name())
            || (parent, path.name()) == ("target", "value")
    }

    pub(crate) fn is_int_or_string(self, path: &Path<'_>) -> bool {
        let names = ["maxUnavailable", "minAvailable", "maxSurge", "port", "targetPort"];
        matches!(self, Shape::BuiltIn { .. }) && names.contains(&path.name())
    }
}

/// Where we are. It is written out only if there is something to say.
pub(crate) struct Path<'a> {
    up: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Field(&'a str),
    Element { index: usize, key: Option<&'a str> },
}

impl<'a> Path<'a> {
    pub(crate) const ROOT: Path<'static> = Path { up: None, step: Step::Root };

    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(self), step: Step::Field(name) }
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        self.element(index, None)
    }

    pub(crate) fn element(&'a self, index: usize, key: Option<&'a str>) -> Path<'a> {
        Path { up: Some(self), step: Step::Element { index, key } }
    }

    /// The field that this is, or is an element of.
    pub(crate) fn name(&self) -> &'a str {
        match (&self.step, self.up) {
            (Step::Field(name), _) => name,
            (Step::Element { .. }, Some(up)) => up.name(),
            (Step::Element { .. } | Step::Root, _) => "",
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            fmt::Display::fmt(up, f)?;
        }
        let is_first = self.up.is_none_or(|up| matches!(up.step, Step::Root));
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if name.contains(['.', '/']) => write!(f, "[{name}]"),
            Step::Field(name) if is_first => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Element { key: Some(key), .. } => write!(f, "[{key}]"),
            Step::Element { index, key: None } => write!(f, "[{index}]"),
        }
    }
}
