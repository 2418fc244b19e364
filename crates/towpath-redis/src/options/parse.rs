//! Reading a URL. Every refusal is a hint: what is wrong and what to write instead, without any part of a password.

use percent_encoding::percent_decode_str;
use towpath_core::store::Durability;

use super::{Address, Place, RedisOptions, Tls};

type Hint = String;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const ENCODE: &str = "a user or password with one of / ? # % must be percent-encoded (/ is %2F, ? is %3F, # is %23, % is %25)";
const SCHEMES: &str = "begin with redis:// or rediss:// (TLS) for one server, redis+sentinel://host1,host2/mastername for Sentinels, \
                       redis+cluster://host1,host2 for a Cluster";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Standalone,
    Sentinel,
    Cluster,
}

/// A URL, cut at its separators and not yet understood.
struct Pieces<'a> {
    kind: Kind,
    encrypted: bool,
    credentials: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

pub(super) fn parse(url: &str) -> Result<RedisOptions, Hint> {
    let pieces = cut(url)?;
    let (username, password) = pieces.credentials.map(credentials).transpose()?.unwrap_or_default();
    let default_port = if pieces.kind == Kind::Sentinel { SENTINEL_PORT } else { REDIS_PORT };
    let addresses = pieces.hosts.split(',').map(|host| address(host, default_port)).collect::<Result<Vec<_>, _>>()?;
    let (place, database) = place(pieces.kind, addresses, pieces.path)?;
    let tls = pieces.encrypted.then(Tls::default);
    let mut options = RedisOptions { place, database, username, password, tls, ..RedisOptions::standalone("", 0) };
    for pair in pieces.query.split('&').filter(|pair| !pair.is_empty()) {
        query(&mut options, pair)?;
    }
    if options.tls.as_ref().is_some_and(|tls| tls.insecure && tls.ca_file.is_some()) {
        return Err("tls_ca and tls_insecure contradict each other: drop tls_insecure, the authority is enough".to_owned());
    }
    Ok(options)
}

/// What was given, as far as it may be shown: all up to the last @ may belong to a password.
pub(super) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, shown)| format!("...@{shown}"));
    };
    match rest.rsplit_once('@') {
        Some((_, shown)) => format!("{scheme}://...@{shown}"),
        None => url.to_owned(),
    }
}

fn cut(url: &str) -> Result<Pieces<'_>, Hint> {
    let (scheme, rest) = url.split_once("://").ok_or(SCHEMES)?;
    let scheme = scheme.to_ascii_lowercase();
    let (base, kind) = match scheme.split_once('+') {
        None => (scheme.as_str(), Kind::Standalone),
        Some((base, "sentinel")) => (base, Kind::Sentinel),
        Some((base, "cluster")) => (base, Kind::Cluster),
        Some(_) => return Err(SCHEMES.to_owned()),
    };
    let encrypted = match base {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err(SCHEMES.to_owned()),
    };
    let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = front.split_once('/').unwrap_or((front, ""));
    let (credentials, hosts) = authority.rsplit_once('@').map_or((None, authority), |(who, hosts)| (Some(who), hosts));
    // An @ that comes later means that a password ended what we took for the hosts; from here on a hint may quote what it complains about.
    if path.contains('@') || (credentials.is_none() && query.split('&').any(|pair| pair.contains('@') && known(pair).is_none())) {
        return Err(ENCODE.to_owned());
    }
    Ok(Pieces { kind, encrypted, credentials, hosts, path, query })
}

fn credentials(text: &str) -> Result<(Option<String>, Option<String>), Hint> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, password)| (user, Some(password)));
    if user.is_empty() && password.is_none_or(str::is_empty) {
        return Err("no user and no password stand before the @: write user:password@, :password@ or nothing".to_owned());
    }
    let user = Some(user).filter(|user| !user.is_empty()).map(decoded).transpose()?;
    Ok((user, password.filter(|password| !password.is_empty()).map(decoded).transpose()?))
}

fn decoded(text: &str) -> Result<String, Hint> {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let cut_short = bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !(is_hex(at + 1) && is_hex(at + 2)));
    if cut_short {
        return Err(ENCODE.to_owned());
    }
    let text = percent_decode_str(text).decode_utf8().map_err(|_| "a percent-encoded word is no UTF-8".to_owned())?;
    Ok(text.into_owned())
}

fn address(text: &str, default_port: u16) -> Result<Address, Hint> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("an IPv6 address in brackets lacks its closing bracket")?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("'{host}' is no IPv6 address"));
            }
            match after.strip_prefix(':') {
                None if after.is_empty() => (host, None),
                Some(port) => (host, Some(port)),
                None => return Err("after the closing bracket only :port may follow".to_owned()),
            }
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err("write an IPv6 address in brackets: [::1]:6379".to_owned()),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing: write redis://host:port".to_owned());
    }
    if host.contains(|letter: char| letter.is_whitespace() || letter.is_control() || "%\"'<>\\^`{|}".contains(letter)) {
        return Err(format!("'{host}' is no name of a host"));
    }
    let port = match port {
        None => default_port,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or("the port is no number from 1 to 65535")?,
    };
    Ok(Address { host: host.to_owned(), port })
}

fn place(kind: Kind, mut addresses: Vec<Address>, path: &str) -> Result<(Place, i64), Hint> {
    match kind {
        Kind::Standalone if addresses.len() == 1 => Ok((Place::Standalone(addresses.remove(0)), database(path)?)),
        Kind::Standalone => Err("several hosts: write redis+sentinel://host1,host2/mastername or redis+cluster://host1,host2".to_owned()),
        Kind::Cluster if database(path)? == 0 => Ok((Place::Cluster(addresses), 0)),
        Kind::Cluster => Err("a Cluster has only database 0: leave the path away".to_owned()),
        Kind::Sentinel => {
            let (master, path) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err("the name of the master is missing: write redis+sentinel://host1,host2/mastername".to_owned());
            }
            Ok((Place::Sentinel { sentinels: addresses, master: decoded(master)? }, database(path)?))
        }
    }
}

fn database(path: &str) -> Result<i64, Hint> {
    if path.is_empty() {
        return Ok(0);
    }
    let number = path.parse::<u16>();
    number.map(i64::from).map_err(|_| format!("'/{path}' names no database: write its number, as in redis://host/2"))
}

/// The option that a pair sets, if there is such an option.
fn known(pair: &str) -> Option<(&'static str, &str)> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    ["prefix", "durability", "replicas", "tls_ca", "tls_insecure"].into_iter().find(|known| *known == name).map(|name| (name, value))
}

fn query(options: &mut RedisOptions, pair: &str) -> Result<(), Hint> {
    let Some((name, value)) = known(pair) else {
        let name = pair.split('=').next().unwrap_or_default();
        return Err(format!("there is no option '{name}': there are prefix, durability, replicas, tls_ca and tls_insecure"));
    };
    let value = decoded(value)?;
    if value.is_empty() {
        return Err(format!("the option {name} has no value: write {name}=..."));
    }
    match name {
        "prefix" => options.prefix = prefix(value)?,
        "durability" => options.durability = Some(durability(&value)?),
        "replicas" => options.replicas = replicas(&value)?,
        _ => {
            let tls = options.tls.as_mut().ok_or_else(|| format!("{name} needs TLS: begin with rediss://"))?;
            match (name, value.as_str()) {
                ("tls_ca", _) => tls.ca_file = Some(value),
                (_, "true") => tls.insecure = true,
                (_, "false") => tls.insecure = false,
                _ => return Err("tls_insecure is true or false".to_owned()),
            }
        }
    }
    Ok(())
}

/// A brace would move the hash tag that keeps a function in one slot; the rest would only be trouble in an ACL.
fn prefix(value: String) -> Result<String, Hint> {
    match value.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-:".contains(letter)) {
        true => Ok(value),
        false => Err("a prefix consists of letters, digits and . _ - :".to_owned()),
    }
}

fn replicas(number: &str) -> Result<u32, Hint> {
    let number = number.parse().ok().filter(|number| (1..=100).contains(number));
    number.ok_or_else(|| "replicas is how many replicas confirm a write at durability=replicated: a number from 1 to 100".to_owned())
}

fn durability(word: &str) -> Result<Durability, Hint> {
    match word.parse() {
        Ok(Durability::Fsync) | Err(_) => Err(format!("'{word}' is no durability here: write memory, everysec, always or replicated")),
        Ok(level) => Ok(level),
    }
}
