//! How our types look in a column: text a person can read with the `sqlite3` shell.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};

/// A value as JSON text.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> ToSql for Json<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        serde_json::to_string(&self.0).map(ToSqlOutput::from).map_err(unwritable)
    }
}

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(FromSqlError::other)
    }
}

/// A name from a closed set, or any type that is one text, as that text.
pub(super) struct Word<T>(pub(super) T);

impl<T: Serialize> ToSql for Word<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = serde_json::to_value(&self.0).map_err(unwritable)?;
        let text = value.as_str().ok_or_else(|| unwritable(format!("{value} is not one text")))?;
        Ok(ToSqlOutput::from(text.to_owned()))
    }
}

impl<T: DeserializeOwned> FromSql for Word<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text: StrDeserializer<'_, serde::de::value::Error> =
            value.as_str()?.into_deserializer();
        T::deserialize(text).map(Self).map_err(FromSqlError::other)
    }
}

fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}
