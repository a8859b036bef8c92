//! The mapped file of weights, and blocks in it. The only unsafe code of this crate.
//!
//! Weights are used where the kernel maps them: they are shared by processes, cost no copy, and can be dropped
//! and read again. [`MappedBlocks`] hands them to candle, which asks for the address of the blocks.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use candle_core::CpuStorage;
use candle_core::quantized::k_quants::{
    self, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K,
    BlockQ6K, BlockQ8_0, GgmlType,
};
use candle_core::quantized::{GgmlDType, QuantizedType};
use half::{bf16, f16};
use memmap2::{Mmap, UncheckedAdvice};

/// A file mapped into memory, read-only.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps a regular file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        #[expect(unsafe_code, reason = "the file may change while it is mapped")]
        // SAFETY: the bytes are only read as numbers, of which every bit pattern is valid, after their bounds were
        // checked once against the length of the map. A process that truncates the file ends this one by a signal,
        // which is why the engine runs in a process of its own.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { map })
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Gives the memory of a range back to the kernel. A later read fetches it from the file again.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[expect(unsafe_code, reason = "dropping pages of a map that could be written loses data")]
        // SAFETY: the map is read-only, so its pages hold what the file holds, before and after.
        let released = unsafe {
            self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
        };
        drop(released); // A failure only keeps the memory in use.
    }
}

/// Blocks of one format in a mapped file.
pub(crate) struct MappedBlocks<T> {
    file: Arc<MappedFile>,
    range: Range<usize>,
    format: PhantomData<T>,
}

impl<T: GgmlType> MappedBlocks<T> {
    /// The blocks in `range`, if it is inside the file, aligned and a whole number of blocks.
    fn new(file: &Arc<MappedFile>, range: Range<usize>) -> Option<Self> {
        let bytes = file.bytes().get(range.clone())?;
        let is_aligned = bytes.as_ptr().cast::<T>().is_aligned();
        (is_aligned && bytes.len().is_multiple_of(size_of::<T>())).then(|| Self {
            file: Arc::clone(file),
            range,
            format: PhantomData,
        })
    }

    fn blocks(&self) -> &[T] {
        let bytes = self.file.bytes().get(self.range.clone()).unwrap_or_default();
        #[expect(unsafe_code, reason = "candle has no safe view of blocks")]
        // SAFETY: `new` checked bounds and alignment, the map never moves, and the formats (see `map_blocks`) are
        // arrays of numbers without padding, of which every bit pattern is valid.
        unsafe {
            std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>())
        }
    }
}

impl<T: GgmlType> QuantizedType for MappedBlocks<T> {
    fn dtype(&self) -> GgmlDType {
        T::DTYPE
    }

    fn matmul_t(
        &self,
        mkn: (usize, usize, usize),
        lhs: &[f32],
        dst: &mut [f32],
    ) -> candle_core::Result<()> {
        k_quants::matmul(mkn, lhs, self.blocks(), dst)
    }

    fn matmul_t_f16(
        &self,
        mkn: (usize, usize, usize),
        lhs: &[f16],
        dst: &mut [f16],
    ) -> candle_core::Result<()> {
        k_quants::matmul_f16(mkn, lhs, self.blocks(), dst)
    }

    fn embedding(
        &self,
        ids: &[u32],
        rows: usize,
        hidden: usize,
    ) -> candle_core::Result<CpuStorage> {
        let blocks = hidden / T::BLCK_SIZE;
        let mut out = vec![0.0; ids.len() * hidden];
        for (row, &id) in out.chunks_exact_mut(hidden).zip(ids) {
            let start = id as usize * blocks;
            let Some(source) = self.blocks().get(start..start + blocks) else {
                candle_core::bail!("the token {id} is outside the table of {rows} rows")
            };
            T::to_float(source, row);
        }
        Ok(CpuStorage::F32(out))
    }

    fn dequantize(&self, elem_count: usize) -> candle_core::Result<CpuStorage> {
        let mut out = vec![0.0; elem_count];
        T::to_float(self.blocks(), &mut out);
        Ok(CpuStorage::F32(out))
    }

    fn storage_size_in_bytes(&self) -> usize {
        self.range.len()
    }

    fn as_ptr(&self) -> *const u8 {
        self.blocks().as_ptr().cast()
    }

    fn block_size(&self) -> usize {
        T::BLCK_SIZE
    }

    /// Never called: the weights are read-only.
    fn from_float(&mut self, _: &[f32]) {}

    /// Never called: the weights are read-only.
    fn from_float_imatrix(&mut self, _: &[f32], _: &[f32], _: usize) {}

    fn size(&self) -> usize {
        self.range.len()
    }
}

/// The format with this number in GGUF files, or why it cannot be used.
pub(crate) fn format(number: u32) -> Result<GgmlDType, Cow<'static, str>> {
    Ok(match number {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        other => return Err(format!("its weights have the unknown format {other}").into()),
    })
}

/// The blocks of a tensor in `range`; none if they are outside the file or not aligned.
pub(crate) fn map_blocks(
    file: &Arc<MappedFile>,
    format: GgmlDType,
    range: Range<usize>,
) -> Option<Box<dyn QuantizedType>> {
    fn map<T: GgmlType + 'static>(
        file: &Arc<MappedFile>,
        range: Range<usize>,
    ) -> Option<Box<dyn QuantizedType>> {
        Some(Box::new(MappedBlocks::<T>::new(file, range)?))
    }
    match format {
        GgmlDType::F32 => map::<f32>(file, range),
        GgmlDType::F16 => map::<f16>(file, range),
        GgmlDType::BF16 => map::<bf16>(file, range),
        GgmlDType::Q4_0 => map::<BlockQ4_0>(file, range),
        GgmlDType::Q4_1 => map::<BlockQ4_1>(file, range),
        GgmlDType::Q5_0 => map::<BlockQ5_0>(file, range),
        GgmlDType::Q5_1 => map::<BlockQ5_1>(file, range),
        GgmlDType::Q8_0 => map::<BlockQ8_0>(file, range),
        GgmlDType::Q2K => map::<BlockQ2K>(file, range),
        GgmlDType::Q3K => map::<BlockQ3K>(file, range),
        GgmlDType::Q4K => map::<BlockQ4K>(file, range),
        GgmlDType::Q5K => map::<BlockQ5K>(file, range),
        GgmlDType::Q6K => map::<BlockQ6K>(file, range),
        GgmlDType::Q8_1 | GgmlDType::Q8K => None,
    }
}
