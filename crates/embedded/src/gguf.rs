//! Reads the header of a GGUF file: metadata and where each tensor is. Nothing in the file is trusted.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeMap;
use std::ops::Range;

/// The first bytes of every GGUF file.
const MAGIC: &[u8] = b"GGUF";
/// The versions that have the layout read here.
const VERSIONS: Range<u32> = 2..4;
/// The most tensors of a file that is read; a model of 80 layers has about 1,000.
const MAX_TENSORS: u64 = 16_384;
/// The most entries of metadata.
const MAX_ENTRIES: u64 = 4_096;
/// The most dimensions of a tensor.
const MAX_DIMENSIONS: u32 = 4;
/// The deepest nesting of arrays.
const MAX_NESTING: usize = 4;
/// Where tensors start, if the file does not say otherwise: at a multiple of this.
const DEFAULT_ALIGNMENT: u64 = 32;
/// The largest alignment that is accepted.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// The header of a GGUF file.
#[derive(Debug)]
pub(crate) struct GgufHeader<'a> {
    entries: BTreeMap<&'a str, MetadataValue<'a>>,
    tensors: BTreeMap<&'a str, TensorEntry>,
}

/// Where a tensor is and what it contains.
#[derive(Debug, Clone)]
pub(crate) struct TensorEntry {
    /// Its dimensions, the contiguous one first.
    pub(crate) dimensions: Vec<usize>,
    /// The number of its format.
    pub(crate) format: u32,
    /// Where its data begin, from the start of the file.
    pub(crate) start: usize,
}

/// A value of the metadata.
#[derive(Debug)]
pub(crate) enum MetadataValue<'a> {
    /// An integer of any width.
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// A truth value, which no setting of a model needs.
    Bool,
    /// A text.
    Text(&'a str),
    /// A list of values of one type.
    List(Vec<Self>),
}

impl<'a> GgufHeader<'a> {
    /// Reads the header at the start of `file`. The error is a sentence.
    pub(crate) fn read(file: &'a [u8]) -> Result<Self, String> {
        let mut reader = Reader { rest: file };
        if reader.take(MAGIC.len())? != MAGIC {
            return Err("it does not start with GGUF".into());
        }
        let version = reader.u32()?;
        if !VERSIONS.contains(&version) {
            return Err(format!("version {version} of the format is not known"));
        }
        let tensor_count = reader.count(MAX_TENSORS, "tensors")?;
        let entry_count = reader.count(MAX_ENTRIES, "entries of metadata")?;
        let mut entries = BTreeMap::new();
        for _ in 0..entry_count {
            let key = reader.text()?;
            let kind = reader.u32()?;
            entries.insert(key, reader.value(kind, 0)?);
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let (name, tensor) = reader.tensor()?;
            tensors.insert(name, tensor);
        }
        let header_bytes = file.len() - reader.rest.len();
        let mut header = Self { entries, tensors };
        header.place_tensors(header_bytes as u64)?;
        Ok(header)
    }

    /// Turns offsets from the end of the header into offsets from the start of the file.
    fn place_tensors(&mut self, header_bytes: u64) -> Result<(), String> {
        let alignment = match self.entries.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(_) => self.integer("general.alignment")? as u64,
        };
        if !(1..=MAX_ALIGNMENT).contains(&alignment) {
            return Err(format!("its alignment is {alignment}"));
        }
        let data = header_bytes.next_multiple_of(alignment) as usize;
        for (name, tensor) in &mut self.tensors {
            let start = data.checked_add(tensor.start);
            tensor.start = start.ok_or_else(|| format!("the tensor {name} is outside the file"))?;
        }
        Ok(())
    }

    /// The tensor of this name.
    pub(crate) fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(name)
    }

    fn entry(&self, key: &str) -> Result<&MetadataValue<'a>, String> {
        self.entries.get(key).ok_or_else(|| format!("its metadata have no {key}"))
    }

    /// The text under `key`.
    pub(crate) fn text(&self, key: &str) -> Result<&'a str, String> {
        let value = self.entry(key)?;
        value.as_text().ok_or_else(|| format!("{key} is {}, not a text", value.kind()))
    }

    /// The integer under `key`; negative ones are refused.
    pub(crate) fn integer(&self, key: &str) -> Result<usize, String> {
        let value = self.entry(key)?;
        let number = value.as_integer();
        let number = number.ok_or_else(|| format!("{key} is {}, not an integer", value.kind()))?;
        usize::try_from(number).map_err(|_| format!("{key} is {number}"))
    }

    /// The number under `key`.
    pub(crate) fn float(&self, key: &str) -> Result<f64, String> {
        let value = self.entry(key)?;
        if let MetadataValue::Float(number) = value {
            return Ok(*number);
        }
        Err(format!("{key} is {}, not a number", value.kind()))
    }

    /// The list under `key`.
    pub(crate) fn list(&self, key: &str) -> Result<&[MetadataValue<'a>], String> {
        let value = self.entry(key)?;
        if let MetadataValue::List(list) = value {
            return Ok(list);
        }
        Err(format!("{key} is {}, not a list", value.kind()))
    }
}

impl<'a> MetadataValue<'a> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Bool => "a truth value",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
        }
    }

    /// The text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Integer(_) | Self::Float(_) | Self::Bool | Self::List(_) => None,
        }
    }

    /// The integer, if it is one.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Text(_) | Self::Float(_) | Self::Bool | Self::List(_) => None,
        }
    }
}

/// What is left to read.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or("it ends within its header")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or("it ends within its header")?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn count(&mut self, most: u64, what: &str) -> Result<u64, String> {
        let count = self.u64()?;
        if count > most {
            return Err(format!("it claims {count} {what}; at most {most} are read"));
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let bytes = usize::try_from(self.u64()?).map_err(|_| "a text is too long")?;
        str::from_utf8(self.take(bytes)?).map_err(|_| "a text is not UTF-8".into())
    }

    fn tensor(&mut self) -> Result<(&'a str, TensorEntry), String> {
        let name = self.text()?;
        let dimension_count = self.u32()?;
        if dimension_count > MAX_DIMENSIONS {
            return Err(format!("the tensor {name} has {dimension_count} dimensions"));
        }
        let mut dimensions = Vec::new();
        for _ in 0..dimension_count {
            let size = usize::try_from(self.u64()?);
            dimensions.push(size.map_err(|_| format!("the tensor {name} is too large"))?);
        }
        let format = self.u32()?;
        let start = usize::try_from(self.u64()?);
        let start = start.map_err(|_| format!("the tensor {name} is outside the file"))?;
        Ok((name, TensorEntry { dimensions, format, start }))
    }

    fn value(&mut self, kind: u32, nesting: usize) -> Result<MetadataValue<'a>, String> {
        use MetadataValue::{Bool, Float, Integer, Text};
        Ok(match kind {
            0 => Integer(u8::from_le_bytes(self.array()?).into()),
            1 => Integer(i8::from_le_bytes(self.array()?).into()),
            2 => Integer(u16::from_le_bytes(self.array()?).into()),
            3 => Integer(i16::from_le_bytes(self.array()?).into()),
            4 => Integer(self.u32()?.into()),
            5 => Integer(i32::from_le_bytes(self.array()?).into()),
            6 => Float(f32::from_le_bytes(self.array()?).into()),
            7 => self.array::<1>().map(|_| Bool)?,
            8 => Text(self.text()?),
            9 => self.list(nesting)?,
            10 => Integer(self.u64()?.into()),
            11 => Integer(i64::from_le_bytes(self.array()?).into()),
            12 => Float(f64::from_le_bytes(self.array()?)),
            other => return Err(format!("a value of its metadata has the unknown type {other}")),
        })
    }

    /// A list is not allocated before its elements were read, so a claimed length costs nothing.
    fn list(&mut self, nesting: usize) -> Result<MetadataValue<'a>, String> {
        if nesting == MAX_NESTING {
            return Err("lists of its metadata are nested too deeply".into());
        }
        let kind = self.u32()?;
        let count = self.u64()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(self.value(kind, nesting + 1)?);
        }
        Ok(MetadataValue::List(list))
    }
}
