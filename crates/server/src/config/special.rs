//! Values with a notation of their own, most of them several words in one.
//!
//! Redis splits such a value at every single blank, so two in a row make an empty word, which none of
//! these accepts; and a value of no characters is no words where that makes sense.

use cairn_resp::number::{parse_f64, parse_i64};
use cairn_store::EventClass;

use super::kind::{Refusal, parse_size};

type Result = std::result::Result<Vec<u8>, Refusal>;

fn words(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b' ').collect()
}

/// As many addresses as Redis takes.
const MOST_ADDRESSES: usize = 16;

/// `bind`: addresses. Whether they can be listened on is found out by doing so.
pub fn addresses(text: &[u8], _: &[u8]) -> Result {
    if words(text).len() > MOST_ADDRESSES {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(text.to_vec())
}

/// `save`: pairs of seconds and changes.
pub fn save_points(text: &[u8], _: &[u8]) -> Result {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let words = words(text);
    let is_point = |pair: &[&[u8]]| {
        let number = |at: usize| pair.get(at).and_then(|word| parse_i64(word));
        matches!((number(0), number(1)), (Some(1..), Some(0..)))
    };
    if !words.chunks(2).all(is_point) {
        return Err("Invalid save parameters".into());
    }
    Ok(words.join(&b' '))
}

/// The letters of `notify-keyspace-events`, in the order in which they are shown: first the classes that
/// `A` stands for, then the channels, then what has to be asked for by name.
const ALL_CLASSES: &[u8] = b"g$lshzxetd";
const CHANNELS: &[u8] = b"KE";
const NEVER_IMPLIED: &[u8] = b"mn";

/// The letters as the store knows them.
const EVENT_CLASSES: [(u8, EventClass); 12] = [
    (b'g', EventClass::Generic),
    (b'$', EventClass::String),
    (b'l', EventClass::List),
    (b's', EventClass::Set),
    (b'h', EventClass::Hash),
    (b'z', EventClass::Zset),
    (b'x', EventClass::Expired),
    (b'e', EventClass::Evicted),
    (b't', EventClass::Stream),
    (b'd', EventClass::Module),
    (b'm', EventClass::Missed),
    (b'n', EventClass::New),
];

/// The classes that a value asks for; none without a channel to tell of them.
pub fn event_bits(value: &[u8]) -> u32 {
    let has = |letter: u8| value.contains(&letter);
    let mut bits = 0;
    for (letter, class) in EVENT_CLASSES {
        let is_implied = has(b'A') && ALL_CLASSES.contains(&letter);
        if is_implied || has(letter) {
            bits |= class as u32;
        }
    }
    let channels = [(b'K', EventClass::BY_KEY), (b'E', EventClass::BY_EVENT)];
    let channels = channels.iter().filter(|(letter, _)| has(*letter));
    match channels.fold(0, |bits, (_, bit)| bits | bit) {
        0 => 0,
        channels => bits | channels,
    }
}

/// Redis shows new keys only beside classes that are spelled out, though they are told of all the same.
pub fn shown_event_classes(value: &[u8]) -> Vec<u8> {
    let hides_new = value.contains(&b'A');
    let shown = value.iter().filter(|letter| !hides_new || **letter != b'n');
    shown.copied().collect()
}

/// `notify-keyspace-events`: a set of letters.
pub fn event_classes(text: &[u8], _: &[u8]) -> Result {
    let known = [ALL_CLASSES, CHANNELS, NEVER_IMPLIED, b"A"].concat();
    if !text.iter().all(|letter| known.contains(letter)) {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into());
    }
    let has = |letter: &u8| text.contains(letter);
    let has_all = has(&b'A') || ALL_CLASSES.iter().all(has);
    let mut shown = Vec::new();
    if has_all {
        shown.push(b'A');
    } else {
        shown.extend(ALL_CLASSES.iter().filter(|letter| has(letter)));
    }
    shown.extend(has(&b'n').then_some(b'n'));
    shown.extend(CHANNELS.iter().filter(|letter| has(letter)));
    shown.extend(has(&b'm').then_some(b'm'));
    Ok(shown)
}

/// `client-output-buffer-limit`: a class of clients with its hard limit, its soft limit and the seconds
/// for which that may be passed; for as many classes as are to change.
pub fn output_limits(text: &[u8], current: &[u8]) -> Result {
    let mut shown: Vec<Vec<u8>> = words(current).into_iter().map(<[u8]>::to_vec).collect();
    let words = words(text);
    if text.is_empty() {
        return Ok(current.to_vec());
    }
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for limit in words.chunks_exact(4) {
        let class: &[u8] = match limit[0].to_ascii_lowercase().as_slice() {
            b"normal" => b"normal",
            b"slave" | b"replica" => b"slave",
            b"pubsub" => b"pubsub",
            _ => {
                return Err("Invalid client class specified in buffer limit configuration.".into());
            }
        };
        let seconds = parse_i64(limit[3]).filter(|seconds| *seconds >= 0);
        let (Some(hard), Some(soft), Some(seconds)) =
            (parse_size(limit[1]), parse_size(limit[2]), seconds)
        else {
            let refusal =
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            return Err(refusal.into());
        };
        if let Some(at) = shown.iter().position(|word| word == class) {
            for (place, number) in shown[at + 1..].iter_mut().zip([hard, soft, seconds as u64]) {
                *place = number.to_string().into_bytes();
            }
        }
    }
    Ok(shown.join(&b' '))
}

/// `oom-score-adj-values`: for the master, for replicas, for background children.
pub fn oom_scores(text: &[u8], _: &[u8]) -> Result {
    let words = words(text);
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let is_score = |word: &&[u8]| matches!(parse_i64(word), Some(-2000..=2000));
    if !words.iter().all(is_score) {
        return Err(
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into(),
        );
    }
    Ok(text.to_vec())
}

/// `latency-tracking-info-percentiles`.
pub fn percentiles(text: &[u8], _: &[u8]) -> Result {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut shown = Vec::new();
    for word in words(text) {
        let percentile =
            parse_f64(word).ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&percentile) {
            let refusal =
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
            return Err(refusal.into());
        }
        let text = format!("{percentile:.6}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        shown.push(text.as_bytes().to_vec());
    }
    Ok(shown.join(&b' '))
}

const SHUTDOWN_OPTIONS: [&str; 5] = ["default", "save", "nosave", "now", "force"];

/// `shutdown-on-sigint` and `shutdown-on-sigterm`: options of SHUTDOWN, or `default` for none.
pub fn shutdown_options(text: &[u8], _: &[u8]) -> Result {
    let mut given = [false; SHUTDOWN_OPTIONS.len()];
    for word in words(text) {
        let is_it = |option: &&str| word.eq_ignore_ascii_case(option.as_bytes());
        let Some(at) = SHUTDOWN_OPTIONS.iter().position(is_it) else {
            let options = SHUTDOWN_OPTIONS.join(", ");
            return Err(format!("argument(s) must be one of the following: {options}").into());
        };
        given[at] = true;
    }
    if given[1] && given[2] {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    let named = SHUTDOWN_OPTIONS.iter().zip(given).skip(1);
    let shown: Vec<&str> = named
        .filter(|(_, given)| *given)
        .map(|(option, _)| *option)
        .collect();
    if shown.is_empty() {
        return Ok(b"default".to_vec());
    }
    Ok(shown.join(" ").into_bytes())
}

/// `hz`: any number, of which only some make sense.
pub fn frequency(text: &[u8], _: &[u8]) -> Result {
    let number = parse_i64(text).ok_or("argument couldn't be parsed into an integer")?;
    if !(0..=i64::from(i32::MAX)).contains(&number) {
        return Err("argument must be between 0 and 2147483647 inclusive".into());
    }
    Ok(number.clamp(1, 500).to_string().into_bytes())
}

/// `cluster-announce-ip`: an address or a name, which stands in lines of text that others read.
pub fn announced_host(text: &[u8], _: &[u8]) -> Result {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b",@".contains(byte);
    match text.len() < 256 && text.iter().all(is_plain) {
        true => Ok(text.to_vec()),
        false => Err("argument must be an address or a host name".into()),
    }
}

/// `cluster-announce-hostname`.
pub fn host_name(text: &[u8], _: &[u8]) -> Result {
    if text.len() > 255 {
        return Err("Hostnames must be less than 256 characters".into());
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'.';
    if !text.iter().all(is_plain) {
        let refusal = "Hostnames may only contain alphanumeric characters, hyphens or dots";
        return Err(refusal.into());
    }
    Ok(text.to_vec())
}

const TITLE_VARIABLES: [&str; 7] = [
    "title",
    "listen-addr",
    "server-mode",
    "port",
    "tls-port",
    "unixsocket",
    "config-file",
];

/// `proc-title-template`: text with variables in braces.
pub fn process_title(text: &[u8], _: &[u8]) -> Result {
    let refusal = "template format is invalid or contains unknown variables";
    let mut rest = std::str::from_utf8(text).map_err(|_| refusal)?;
    if rest.trim().is_empty() {
        return Err(refusal.into());
    }
    while let Some((_, after)) = rest.split_once('{') {
        let (variable, after) = after.split_once('}').ok_or(refusal)?;
        if !TITLE_VARIABLES.contains(&variable) {
            return Err(refusal.into());
        }
        rest = after;
    }
    Ok(text.to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::kind::Normalise;
    use super::*;

    // All of these are what a Redis 7.0.15 answered.

    fn shows(normalise: Normalise, current: &str, cases: &[(&str, &str)]) {
        for (text, shown) in cases {
            let read = normalise(text.as_bytes(), current.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), *shown, "{text:?}");
        }
    }

    fn refuses(normalise: Normalise, texts: &[&str], refusal: &str) {
        for text in texts {
            let refused = normalise(text.as_bytes(), b"").unwrap_err();
            assert_eq!(refused, refusal, "{text:?}");
        }
    }

    #[test]
    fn save_takes_pairs() {
        shows(
            save_points,
            "",
            &[("900 1 300 10", "900 1 300 10"), ("", ""), ("1 0", "1 0")],
        );
        let wrong = [
            "900", "900 1 x", "a b", "0 1", "900  1", " 900 1", "-1 1", "900 -1",
        ];
        refuses(save_points, &wrong, "Invalid save parameters");
    }

    #[test]
    fn event_classes_are_sorted_and_gathered() {
        let cases = [
            ("KEA", "AKE"),
            ("A", "A"),
            ("Kg$lshzxetdmnA", "AnKm"),
            ("Kx", "xK"),
            ("gxE$", "g$xE"),
            ("AKEn", "AnKE"),
            ("KEAmn", "AnKEm"),
            ("Kxn", "xnK"),
            ("K$lshzxegtd", "AK"),
            ("", ""),
        ];
        shows(event_classes, "", &cases);
        for (value, shown) in [("AnKEm", "AKEm"), ("xnK", "xnK"), ("AKE", "AKE")] {
            assert_eq!(shown_event_classes(value.as_bytes()), shown.as_bytes());
        }
        let refusal = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
        refuses(event_classes, &["q", "KEx "], refusal);
    }

    #[test]
    fn output_limits_change_the_classes_they_name() {
        let current = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let cases = [
            ("", current),
            (
                "normal 1mb 2kb 3",
                "normal 1048576 2048 3 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            ),
            (
                "slave 1 2 3 pubsub 4 5 6",
                "normal 0 0 0 slave 1 2 3 pubsub 4 5 6",
            ),
            (
                "Replica 1 2 3",
                "normal 0 0 0 slave 1 2 3 pubsub 33554432 8388608 60",
            ),
        ];
        shows(output_limits, current, &cases);
        let count = "Wrong number of arguments in buffer limit configuration.";
        refuses(output_limits, &["normal", "normal 1 2"], count);
        let class = "Invalid client class specified in buffer limit configuration.";
        refuses(output_limits, &["bogus 1 2 3", "master 1 2 3"], class);
        let number = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let wrong = [
            "normal -1 0 0",
            "normal 0 0 -1",
            "normal a 0 0",
            "normal 1 1 1x",
        ];
        refuses(output_limits, &wrong, number);
    }

    #[test]
    fn percentiles_are_numbers_up_to_a_hundred() {
        let cases = [
            ("50 99 99.9", "50 99 99.9"),
            ("0.0 100", "0 100"),
            ("1e1", "10"),
            ("99.99999999", "100"),
            ("", ""),
        ];
        shows(percentiles, "", &cases);
        let range = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
        refuses(percentiles, &["100.1", "-1"], range);
        let number = "Invalid latency-tracking-info-percentiles parameters";
        refuses(percentiles, &["zzz", "nan"], number);
    }

    #[test]
    fn the_rest() {
        let options = [
            ("save now", "save now"),
            ("save save", "save"),
            ("default save", "save"),
        ];
        shows(shutdown_options, "", &options);
        let both = "shutdown options SAVE and NOSAVE can't be used simultaneously";
        refuses(shutdown_options, &["save nosave"], both);
        shows(oom_scores, "", &[("800 -2000 0", "800 -2000 0")]);
        refuses(
            oom_scores,
            &["0 200", "0 2 3 4", "zzz"],
            "wrong number of arguments",
        );
        shows(frequency, "", &[("501", "500"), ("0", "1"), ("10", "10")]);
        shows(
            process_title,
            "",
            &[("{title} x", "{title} x"), ("zzz", "zzz")],
        );
        let template = "template format is invalid or contains unknown variables";
        refuses(process_title, &["{bad}", "{title", ""], template);
        let host = "Hostnames may only contain alphanumeric characters, hyphens or dots";
        refuses(host_name, &["a b"], host);
    }
}
