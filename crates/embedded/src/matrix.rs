//! One weight matrix: multiplied with activations, or read by row.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QStorage, QTensor, QuantizedType};
use candle_core::{CpuStorage, CustomOp1, Layout};
use rayon::prelude::*;

use crate::fault::EngineFault;
use crate::gguf::{GgufHeader, TensorEntry};
use crate::mapping::{self, MappedFile};
use crate::threads::Threads;

/// Rows of a part are a multiple of this, because candle packs rows in tiles of 16.
const TILE_ROWS: usize = 16;

/// A file of weights and its header.
pub(crate) struct WeightFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) map: &'a Arc<MappedFile>,
    pub(crate) header: &'a GgufHeader<'a>,
}

impl WeightFile<'_> {
    /// The tensor of this name with this shape: its format and where it is.
    fn find(&self, name: &str, shape: &[usize]) -> Result<(GgmlDType, Range<usize>), EngineFault> {
        let damaged = |reason: String| EngineFault::damaged(self.path, reason);
        let tensor: &TensorEntry = self
            .header
            .tensor(name)
            .ok_or_else(|| damaged(format!("the tensor {name} is missing")))?;
        if tensor.dimensions != shape {
            let dimensions = &tensor.dimensions;
            return Err(damaged(format!("{name} is {dimensions:?} instead of {shape:?}")));
        }
        let format = mapping::format(tensor.format)
            .map_err(|reason| EngineFault::unsupported(self.path, reason))?;
        let bytes = bytes_of(format, shape)
            .ok_or_else(|| damaged(format!("{name} has no whole number of blocks")))?;
        let end = tensor.start.checked_add(bytes);
        let end = end.filter(|end| *end <= self.map.bytes().len());
        let end = end.ok_or_else(|| damaged(format!("it ends before the tensor {name} ends")))?;
        Ok((format, tensor.start..end))
    }

    fn blocks(
        &self,
        name: &str,
        format: GgmlDType,
        range: Range<usize>,
    ) -> Result<Box<dyn QuantizedType>, EngineFault> {
        mapping::map_blocks(self.map, format, range)
            .ok_or_else(|| EngineFault::damaged(self.path, format!("{name} is not aligned")))
    }

    /// A tensor of one dimension, as numbers.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, EngineFault> {
        let (format, range) = self.find(name, &[len])?;
        numbers(self.blocks(name, format, range)?.dequantize(len))
    }

    /// A matrix that is multiplied with.
    pub(crate) fn matrix(
        &self,
        name: &str,
        (columns, rows): (usize, usize),
        threads: &Threads,
    ) -> Result<Matrix, EngineFault> {
        let (format, range) = self.find(name, &[columns, rows])?;
        let row_bytes = range.len() / rows.max(1);
        let mut parts = Vec::new();
        for rows in threads.split(rows, TILE_ROWS) {
            let start = range.start + rows.start * row_bytes;
            let range = start..start + rows.len() * row_bytes;
            let blocks = self.blocks(name, format, range.clone())?;
            parts.push(MatrixPart::new(blocks, rows, columns, range)?);
        }
        Ok(Matrix { columns, rows, parts, map: Arc::clone(self.map) })
    }

    /// A matrix of which single rows are read.
    pub(crate) fn table(
        &self,
        name: &str,
        (columns, rows): (usize, usize),
    ) -> Result<RowTable, EngineFault> {
        let (format, range) = self.find(name, &[columns, rows])?;
        Ok(RowTable { columns, rows, blocks: self.blocks(name, format, range)? })
    }
}

/// The bytes of a tensor; none if a row is not a whole number of blocks or the size is absurd.
fn bytes_of(format: GgmlDType, shape: &[usize]) -> Option<usize> {
    let columns = *shape.first()?;
    if !columns.is_multiple_of(format.block_size()) {
        return None;
    }
    let elements = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size))?;
    (elements / format.block_size()).checked_mul(format.type_size())
}

/// A matrix of which single rows are read, such as the embeddings. It stays in its compact form.
pub(crate) struct RowTable {
    columns: usize,
    rows: usize,
    blocks: Box<dyn QuantizedType>,
}

impl RowTable {
    /// The rows of these tokens, one after the other.
    pub(crate) fn rows(&self, ids: &[u32]) -> Result<Vec<f32>, EngineFault> {
        numbers(self.blocks.embedding(ids, self.rows, self.columns))
    }
}

/// A weight matrix, cut into one part per thread.
pub(crate) struct Matrix {
    columns: usize,
    rows: usize,
    parts: Vec<MatrixPart>,
    map: Arc<MappedFile>,
}

/// Consecutive rows of a matrix.
struct MatrixPart {
    rows: Range<usize>,
    weights: PartWeights,
    /// Where its blocks are in the file.
    range: Range<usize>,
}

/// How a part is multiplied.
enum PartWeights {
    /// candle packs a copy at the first use. The mapped blocks are then not needed any more.
    Packed(QTensor),
    /// The mapped blocks are used as they are.
    Mapped(Box<dyn QuantizedType>),
}

impl MatrixPart {
    fn new(
        blocks: Box<dyn QuantizedType>,
        rows: Range<usize>,
        columns: usize,
        range: Range<usize>,
    ) -> Result<Self, EngineFault> {
        // candle keeps packed Q6K beside its source, because it packs only for several rows of activations. The
        // compact form is as fast for one row and costs no second copy.
        let weights = if blocks.dtype() == GgmlDType::Q4K {
            let tensor = QTensor::new(QStorage::Cpu(blocks), (rows.len(), columns));
            PartWeights::Packed(tensor.map_err(internal)?)
        } else {
            PartWeights::Mapped(blocks)
        };
        Ok(Self { rows, weights, range })
    }

    /// `count` rows of activations times the transposed part.
    fn multiply(
        &self,
        input: &CpuStorage,
        count: usize,
        columns: usize,
    ) -> Result<Vec<f32>, EngineFault> {
        match &self.weights {
            PartWeights::Packed(tensor) => {
                let layout = Layout::contiguous((count, columns));
                numbers(tensor.cpu_fwd(input, &layout).map(|(output, _)| output))
            }
            PartWeights::Mapped(blocks) => {
                let mut output = vec![0.0; count * self.rows.len()];
                let input = input.as_slice::<f32>().map_err(internal)?;
                let sizes = (count, columns, self.rows.len());
                blocks.matmul_t(sizes, input, &mut output).map_err(internal)?;
                Ok(output)
            }
        }
    }
}

impl Matrix {
    /// `input` (rows of `columns` numbers) times the transposed matrix.
    pub(crate) fn multiply(
        &self,
        input: &Activations,
        threads: &Threads,
    ) -> Result<Vec<f32>, EngineFault> {
        let Activations { storage, count } = input;
        let part = |part: &MatrixPart| part.multiply(storage, *count, self.columns);
        let mut products = match self.parts.as_slice() {
            [only] => vec![part(only)?],
            parts => threads.run(|| parts.par_iter().map(part).collect::<Result<Vec<_>, _>>())?,
        };
        if products.len() == 1 {
            return Ok(products.pop().unwrap_or_default());
        }
        Ok(self.join(&products, *count))
    }

    /// Puts the products of the parts beside each other.
    fn join(&self, products: &[Vec<f32>], count: usize) -> Vec<f32> {
        let mut output = Vec::with_capacity(count * self.rows);
        for row in 0..count {
            for (part, product) in self.parts.iter().zip(products) {
                let width = part.rows.len();
                output.extend(product.get(row * width..(row + 1) * width).unwrap_or_default());
            }
        }
        output
    }

    /// Packs the weights now and gives the memory of their source back.
    pub(crate) fn pack(&self) -> Result<(), EngineFault> {
        for part in &self.parts {
            if let PartWeights::Packed(_) = part.weights {
                let zeros = Activations::new(vec![0.0; self.columns], 1);
                part.multiply(&zeros.storage, 1, self.columns)?;
                self.map.release(part.range.clone());
            }
        }
        Ok(())
    }
}

/// Rows of numbers that matrices are multiplied with.
pub(crate) struct Activations {
    storage: CpuStorage,
    count: usize,
}

impl Activations {
    /// `count` rows.
    pub(crate) fn new(numbers: Vec<f32>, count: usize) -> Self {
        Self { storage: CpuStorage::F32(numbers), count }
    }
}

/// The numbers that candle computed.
fn numbers(computed: candle_core::Result<CpuStorage>) -> Result<Vec<f32>, EngineFault> {
    if let CpuStorage::F32(numbers) = computed.map_err(internal)? {
        return Ok(numbers);
    }
    Err(EngineFault::Internal("candle computed something else than 32-bit numbers".into()))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn internal(error: candle_core::Error) -> EngineFault {
    EngineFault::Internal(error.to_string())
}
