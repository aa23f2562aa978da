// run cuda: fuse
// What a decoder computes of few rows by a gate: both products are one kernel, whose last result is
// the gate's, for kernels of more rows. Either may come first. A result that others read too stays
// a kernel of its own, as does that of 65 rows, of another size, or of another left side.
func.func @main(%x: bf16[n, 64], %z: bf16[n, 64], %many: bf16[65, 64]) -> (bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[65, 8], bf16[n, 8], bf16[n, 8]) attributes {heddle.symbols = {n = [1, 99]}} {
  %w = weight() {name = "w"} : () -> bf16[64, 8]
  %narrow = weight() {name = "narrow"} : () -> bf16[64, 1]
  %bias = weight() {name = "bias"} : () -> f32[8]
  %g = matmul(%x, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %gw = cast(%g) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
  %gb = add(%gw, %bias) : (f32[n, 8], f32[8]) -> f32[n, 8]
  %gs = silu(%gb) : (f32[n, 8]) -> f32[n, 8]
  %u = matmul(%x, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %uw = cast(%u) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
  %ub = add(%uw, %bias) : (f32[n, 8], f32[8]) -> f32[n, 8]
  %p = mul(%gs, %ub) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  %first = cast(%p) {dtype = bf16} : (f32[n, 8]) -> bf16[n, 8]
  %u2 = matmul(%x, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %g2 = matmul(%x, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %s2 = silu(%g2) : (bf16[n, 8]) -> bf16[n, 8]
  %second = mul(%s2, %u2) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
  %g3 = matmul(%z, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %u3 = matmul(%z, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %both = mul(%g3, %u3) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
  %g4 = matmul(%many, %w) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
  %u4 = matmul(%many, %w) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
  %rows = mul(%g4, %u4) : (bf16[65, 8], bf16[65, 8]) -> bf16[65, 8]
  %g5 = matmul(%z, %narrow) {precision = "full"} : (bf16[n, 64], bf16[64, 1]) -> bf16[n, 1]
  %u5 = matmul(%z, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %size = mul(%g5, %u5) : (bf16[n, 1], bf16[n, 8]) -> bf16[n, 8]
  %g6 = matmul(%z, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %u6 = matmul(%x, %w) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
  %side = mul(%g6, %u6) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
  return %first, %second, %both, %g3, %rows, %size, %side : bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[65, 8], bf16[n, 8], bf16[n, 8]
}

// gives
module {
  func.func @main(%arg0: bf16[n, 64], %arg1: bf16[n, 64], %arg2: bf16[65, 64]) -> (bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[65, 8], bf16[n, 8], bf16[n, 8]) attributes {heddle.symbols = {n = [1, 99]}} {
    %0 = weight() {name = "w"} : () -> bf16[64, 8]
    %1 = weight() {name = "narrow"} : () -> bf16[64, 1]
    %2 = weight() {name = "bias"} : () -> f32[8]
    %3:2 = fused(%arg0, %0, %2, %0, %2) ({
    ^bb0(%arg3: bf16[n, 64], %arg4: bf16[64, 8], %arg5: f32[8], %arg6: bf16[64, 8], %arg7: f32[8]):
      %10 = matmul(%arg3, %arg6) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %11 = cast(%10) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
      %12 = add(%11, %arg7) : (f32[n, 8], f32[8]) -> f32[n, 8]
      %13 = silu(%12) : (f32[n, 8]) -> f32[n, 8]
      %14 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %15 = cast(%14) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
      %16 = add(%15, %arg5) : (f32[n, 8], f32[8]) -> f32[n, 8]
      %17 = mul(%13, %16) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      %18 = cast(%17) {dtype = bf16} : (f32[n, 8]) -> bf16[n, 8]
      yield(%18, %13) : (bf16[n, 8], f32[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8], f32[8], bf16[64, 8], f32[8]) -> (bf16[n, 8], f32[n, 8])
    %4:2 = fused(%arg0, %0, %0) ({
    ^bb0(%arg3: bf16[n, 64], %arg4: bf16[64, 8], %arg5: bf16[64, 8]):
      %10 = matmul(%arg3, %arg5) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %11 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %12 = silu(%11) : (bf16[n, 8]) -> bf16[n, 8]
      %13 = mul(%12, %10) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
      yield(%13, %10) : (bf16[n, 8], bf16[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8], bf16[64, 8]) -> (bf16[n, 8], bf16[n, 8])
    %5 = fused(%arg2, %0) ({
    ^bb0(%arg3: bf16[65, 64], %arg4: bf16[64, 8]):
      %10 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
      yield(%10) : (bf16[65, 8]) -> ()
    }) : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
    %6 = fused(%arg2, %0, %5) ({
    ^bb0(%arg3: bf16[65, 64], %arg4: bf16[64, 8], %arg5: bf16[65, 8]):
      %10 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[65, 64], bf16[64, 8]) -> bf16[65, 8]
      %11 = mul(%arg5, %10) : (bf16[65, 8], bf16[65, 8]) -> bf16[65, 8]
      yield(%11) : (bf16[65, 8]) -> ()
    }) : (bf16[65, 64], bf16[64, 8], bf16[65, 8]) -> bf16[65, 8]
    %7:3 = fused(%arg1, %0, %1, %0) ({
    ^bb0(%arg3: bf16[n, 64], %arg4: bf16[64, 8], %arg5: bf16[64, 1], %arg6: bf16[64, 8]):
      %10 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %11 = matmul(%arg3, %arg5) {precision = "full"} : (bf16[n, 64], bf16[64, 1]) -> bf16[n, 1]
      %12 = matmul(%arg3, %arg6) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      yield(%10, %11, %12) : (bf16[n, 8], bf16[n, 1], bf16[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8], bf16[64, 1], bf16[64, 8]) -> (bf16[n, 8], bf16[n, 1], bf16[n, 8])
    %8:2 = fused(%arg1, %0, %7#0, %0, %7#1) ({
    ^bb0(%arg3: bf16[n, 64], %arg4: bf16[64, 8], %arg5: bf16[n, 8], %arg6: bf16[64, 8], %arg7: bf16[n, 1]):
      %10 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %11 = mul(%arg5, %10) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
      %12 = matmul(%arg3, %arg6) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %13 = mul(%arg7, %12) : (bf16[n, 1], bf16[n, 8]) -> bf16[n, 8]
      yield(%11, %13) : (bf16[n, 8], bf16[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8], bf16[n, 8], bf16[64, 8], bf16[n, 1]) -> (bf16[n, 8], bf16[n, 8])
    %9 = fused(%arg0, %0, %7#2) ({
    ^bb0(%arg3: bf16[n, 64], %arg4: bf16[64, 8], %arg5: bf16[n, 8]):
      %10 = matmul(%arg3, %arg4) {precision = "full"} : (bf16[n, 64], bf16[64, 8]) -> bf16[n, 8]
      %11 = mul(%arg5, %10) : (bf16[n, 8], bf16[n, 8]) -> bf16[n, 8]
      yield(%11) : (bf16[n, 8]) -> ()
    }) : (bf16[n, 64], bf16[64, 8], bf16[n, 8]) -> bf16[n, 8]
    return %3#0, %4#0, %8#0, %7#0, %6, %8#1, %9 : bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[65, 8], bf16[n, 8], bf16[n, 8]
  }
}
