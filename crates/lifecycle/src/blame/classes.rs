//! **The blame table**, its columns of classes: what the classes and error numbers of exceptions say.
//!
//! Python's built-in classes are written bare, others with their module; a subclass counts as its superclass.

/// Failures of another agent's call that its caller caused.
pub(super) const INVALID_CALLS: &[&str] =
    &["invalid_call", "unknown_tool", "tool_registry_violation"];

/// Exceptions of services that cannot be reached, or that answer with an error.
pub(super) const SERVICE: &[&str] = &[
    // Python
    "ConnectionError",
    "socket.gaierror",
    "socket.herror",
    "socket.timeout",
    "ssl.SSLError",
    "urllib.error.URLError",
    "http.client.HTTPException",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.HTTPError",
    "requests.exceptions.Timeout",
    "urllib3.exceptions.HTTPError",
    "httpx.TransportError",
    "httpx.HTTPStatusError",
    "aiohttp.client_exceptions.ClientConnectionError",
    "aiohttp.client_exceptions.ClientResponseError",
    "ftplib.Error",
    "smtplib.SMTPException",
    // Ruby
    "SocketError",
    "OpenSSL::SSL::SSLError",
    "Net::OpenTimeout",
    "Net::ReadTimeout",
    "Net::WriteTimeout",
    "Net::ProtocolError",
    "Net::HTTPBadResponse",
    "OpenURI::HTTPError",
    "Faraday::ConnectionFailed",
    "Faraday::ServerError",
    "Faraday::TimeoutError",
    "HTTP::ConnectionError",
    "HTTP::TimeoutError",
];

/// Of these, exceptions about a text that is not an address: nothing was contacted.
pub(super) const ADDRESS: &[&str] =
    &["http.client.InvalidURL", "urllib3.exceptions.LocationValueError"];

/// Error numbers of connections.
pub(super) const SERVICE_ERRNO: &[&str] = &[
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EADDRNOTAVAIL",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ENETDOWN",
    "ENETRESET",
    "ENETUNREACH",
    "ENOTCONN",
    "ETIMEDOUT",
];

/// Exceptions of waits that took too long: of a service only in network code, else of the program's own limit.
pub(super) const TIMEOUT: &[&str] =
    &["TimeoutError", "asyncio.exceptions.TimeoutError", "Timeout::Error"];

/// Exceptions of a connection that ends early.
pub(super) const CUT_OFF: &[&str] = &["EOFError"];

/// Exceptions of files that are missing or may not be used.
pub(super) const FILE: &[&str] = &[
    // Python
    "FileNotFoundError",
    "IsADirectoryError",
    "NotADirectoryError",
    "PermissionError",
    // Ruby
    "Errno::EACCES",
    "Errno::EISDIR",
    "Errno::ENOENT",
    "Errno::ENOTDIR",
    "Errno::EROFS",
    "SQLite3::BusyException",
    "SQLite3::CantOpenException",
    "SQLite3::CorruptException",
    "SQLite3::IOException",
    "SQLite3::LockedException",
    "SQLite3::NotADatabaseException",
    "SQLite3::ReadOnlyException",
];

/// Error numbers of files: of the operating system, and of `SQLite` for the file of a database. A table that does not
/// exist (`SQLITE_ERROR`) is not among them: the statement is the program's.
pub(super) const FILE_ERRNO: &[&str] = &[
    "ENOENT",
    "EACCES",
    "EPERM",
    "EROFS",
    "EISDIR",
    "ENOTDIR",
    "SQLITE_AUTH",
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT",
    "SQLITE_IOERR",
    "SQLITE_LOCKED",
    "SQLITE_NOTADB",
    "SQLITE_PERM",
    "SQLITE_READONLY",
];
/// Errors of changing a file that may only be read.
pub(super) const REFUSED_ERRNO: &[&str] = &["EACCES", "EPERM", "EROFS", "SQLITE_READONLY"];
/// The same where the guest gives no number.
pub(super) const REFUSED: &[&str] = &["SQLite3::ReadOnlyException"];

/// Directories of which a sandbox shows its own.
pub(super) const SANDBOX_DIRECTORIES: &[&str] =
    &["/bin", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// Error numbers of what the sandbox denies.
pub(super) const DENIED_ERRNO: &[&str] = &["EACCES", "EPERM"];

/// Exceptions of texts and bytes that are not in the expected format.
pub(super) const FORMAT: &[&str] = &[
    // Python
    "UnicodeDecodeError",
    "json.decoder.JSONDecodeError",
    "requests.exceptions.JSONDecodeError",
    "xml.etree.ElementTree.ParseError",
    "xml.parsers.expat.ExpatError",
    "csv.Error",
    "_csv.Error",
    "configparser.Error",
    "tomllib.TOMLDecodeError",
    "yaml.error.YAMLError",
    "zlib.error",
    "gzip.BadGzipFile",
    "zipfile.BadZipFile",
    "re.error",
    "re.PatternError",
    "zoneinfo._common.ZoneInfoNotFoundError",
    "http.client.InvalidURL",
    // A program whose own text does not parse never ran: what did not parse is a text that it was given.
    "SyntaxError",
    // Ruby
    "JSON::ParserError",
    "REXML::ParseException",
    "CSV::MalformedCSVError",
    "Psych::SyntaxError",
    "Nokogiri::SyntaxError",
    "Zlib::Error",
    "RegexpError",
    "URI::Error",
];

/// Exceptions that only a mistake in the program causes, whatever was called before.
pub(super) const MISTAKE: &[&str] = &[
    "NameError",
    "ImportError",
    "LoadError",
    "NotImplementedError",
    "RecursionError",
    "SystemStackError",
];

/// Exceptions that arguments of an unexpected type, value or number cause.
pub(super) const ARGUMENT: &[&str] = &[
    // Python
    "TypeError",
    "ValueError",
    "LookupError",
    "AttributeError",
    "ArithmeticError",
    "AssertionError",
    "StopIteration",
    "sqlite3.OperationalError",
    // Both: a program that exits says by it that something will not do.
    EXIT,
    // Ruby
    "ArgumentError",
    "NoMethodError",
    "IndexError",
    "RangeError",
    "ZeroDivisionError",
    "EncodingError",
    "FrozenError",
    "JSON::ParserError",
    "NoMatchingPatternError",
    "SQLite3::SQLException",
];

/// Exceptions by which programs and libraries reject a value of the right type: a text that is not a date, a zero to
/// divide by. A key, an index or an attribute that is not there is a case that the program forgot.
pub(super) const VALUE: &[&str] = &[
    // Python
    "ValueError",
    "ArithmeticError",
    "AssertionError",
    // Ruby
    "ArgumentError",
    "RangeError",
    "ZeroDivisionError",
    "EncodingError",
];

/// The exception by which both guests end a program that calls `exit`.
pub(super) const EXIT: &str = "SystemExit";

/// The class of groups of exceptions.
pub(super) const GROUP: &str = "BaseExceptionGroup";
