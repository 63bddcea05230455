//! Closed enums with a text form: one list gives the enum, its texts, and the parser that knows no others.

/// Defines a closed enum whose variants have a fixed text each.
///
/// Generates `ALL`, `as_str`, `Display` and `FromStr`; the texts are what is stored and shown, so they are
/// written out here and never derived from a variant's name.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $what:literal $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        impl $name {
            /// Every one there is.
            pub const ALL: &'static [$name] = &[$( $name::$variant, )+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $( $name::$variant => $text, )+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::name::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $( $text => Ok($name::$variant), )+
                    _ => Err($crate::name::Error::choice($what, text, &[$( $text, )+])),
                }
            }
        }
    };
}

pub(crate) use choice;

#[cfg(test)]
mod tests {
    use crate::kind::Kind;
    use expect_test::expect;

    #[test]
    fn every_choice_reads_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
        }
    }

    #[test]
    fn an_unknown_choice_is_told_what_there_is() {
        let error = "Sentinel".parse::<Kind>().unwrap_err();
        expect![[r#""Sentinel" is not a kind; choose one of deployment, sentinel, networkpolicy"#]]
            .assert_eq(&error.to_string());
    }
}
