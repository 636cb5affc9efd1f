//! Parses the core's types from their `{:?}` notation.

use super::debug_text::{DebugValue, FromDebug};
use recipes::election::{
    Announcement, Command, Distance, Event, MemberPriority, Offer, Policy, Priority, Profile,
    ZnodeData,
};
use recipes::{
    ClaimOwner, FencingToken, Margins, MemberId, Moment, Queue, Sequence, SessionEvent, SessionId,
    SessionRecord, Ticket,
};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

macro_rules! read_fields {
    ($($type:ident { $($field:ident),+ })+) => {$(
        impl FromDebug for $type {
            fn from_debug(value: &DebugValue) -> Result<Self, String> {
                Ok(Self { $($field: value.field(stringify!($field))?),+ })
            }
        }
    )+};
}

/// Implements [`FromDebug`] for enums whose variants have named fields, one item, or neither.
macro_rules! read_variants {
    ($type:ident: $($variant:ident $(($index:literal))? $({ $($field:ident),+ })?),+) => {
        impl FromDebug for $type {
            fn from_debug(value: &DebugValue) -> Result<Self, String> {
                Ok(match value.name() {
                    $(stringify!($variant) => Self::$variant
                        $((value.item($index)?))?
                        $({ $($field: value.field(stringify!($field))?),+ })?,)+
                    other => return Err(format!("{other:?} is not a {}", stringify!($type))),
                })
            }
        }
    };
}

read_fields! {
    Announcement { leader, ticket }
    Margins { heartbeat, half_tick }
    MemberPriority { member, id, priority }
    Offer { leader, target, number }
    Policy { margins, preempt_after }
    Profile { id, address, labels, revision }
    SessionRecord { session, timeout, known_until, index }
    Ticket { sequence, token }
    ZnodeData { profile, priority, announcement, distance, ready, offer, accepted }
}

read_variants!(Event:
    Session(0),
    Joined(0),
    TicketFound { ticket, data },
    NoTicketFound,
    TicketLost(0),
    QueueRead(0),
    PredecessorRead { predecessor, announcement, distance },
    PredecessorGone { predecessor, token },
    HeadRead { head, announcement, sent_at },
    HeadGone { head, sent_at },
    Foreign { keep_out },
    OfferRead(0),
    TargetRead { target, accepted },
    TargetGone { target },
    PrioritiesRead(0),
    Committed { sent_at },
    ClaimRefused { holder, sent_at },
    Woke,
    Command(0),
    Stop
);

read_variants!(SessionEvent:
    Opened { session, timeout, sent_at },
    TakenOver { record, timeout, sent_at },
    Disconnected,
    Resumed { timeout, sent_at },
    Lost
);

read_variants!(Command:
    Resign,
    Transfer { target, until },
    HandOver(0),
    CancelTransfer(0),
    Preempt { until },
    Pause,
    Resume,
    ReportHealth { healthy },
    UpdateProfile { address, labels },
    SetPriority(0)
);

read_variants!(ClaimOwner: Contender(0), Unknown, Gone);

impl FromDebug for MemberId {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        Self::new(&value.item::<String>(0)?).ok_or_else(|| "not a member's id".to_owned())
    }
}

impl FromDebug for Sequence {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        Self::new(value.item(0)?).ok_or_else(|| "not a number of a queue".to_owned())
    }
}

impl FromDebug for Priority {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        Self::new(value.item(0)?).ok_or_else(|| "not a priority".to_owned())
    }
}

impl FromDebug for Distance {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        value.item(0).map(Self::new)
    }
}

impl FromDebug for SessionId {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        value.item(0).map(Self)
    }
}

impl FromDebug for FencingToken {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        value.item(0).map(Self)
    }
}

impl FromDebug for Moment {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        value.item(0).map(Self)
    }
}

impl FromDebug for Queue {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        value.item::<Vec<Sequence>>(0).map(|members| members.into_iter().collect())
    }
}

impl<T: FromDebug> FromDebug for Option<T> {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        if value.name() == "None" { Ok(None) } else { value.item(0).map(Some) }
    }
}

impl<T: FromDebug> FromDebug for Box<T> {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        T::from_debug(value).map(Self::new)
    }
}

impl<T: FromDebug> FromDebug for Arc<T> {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        T::from_debug(value).map(Self::new)
    }
}

impl<T: FromDebug> FromDebug for Vec<T> {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        value.items()?.iter().map(T::from_debug).collect()
    }
}

impl FromDebug for BTreeMap<String, String> {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        let DebugValue::Map(entries) = value else { return Err("not a map".to_owned()) };
        let entries = entries.iter();
        entries
            .map(|(key, value)| Ok((String::from_debug(key)?, String::from_debug(value)?)))
            .collect()
    }
}

impl FromDebug for String {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        match value {
            DebugValue::Text(text) => Ok(text.clone()),
            other => Err(format!("{other:?} is not a string")),
        }
    }
}

impl FromDebug for Duration {
    fn from_debug(value: &DebugValue) -> Result<Self, String> {
        let text = value.name();
        let wrong = || format!("{text:?} is not a duration");
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = text.split_at(unit_at);
        // The number of decimal places down to nanoseconds.
        let digits = match unit {
            "s" => 9,
            "ms" => 6,
            "µs" => 3,
            "ns" => 0,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.len() > digits {
            return Err(wrong());
        }
        let nanos: u128 = format!("{whole}{fraction:0<digits$}").parse().map_err(|_| wrong())?;
        let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| wrong())?;
        let below = u32::try_from(nanos % 1_000_000_000).map_err(|_| wrong())?;
        Ok(Self::new(seconds, below))
    }
}

macro_rules! read_words {
    ($($type:ident)+) => {$(
        impl FromDebug for $type {
            fn from_debug(value: &DebugValue) -> Result<Self, String> {
                Self::from_str(value.name()).map_err(|error| format!("{:?}: {error}", value.name()))
            }
        }
    )+};
}

read_words! { bool i32 i64 u8 u64 usize }
