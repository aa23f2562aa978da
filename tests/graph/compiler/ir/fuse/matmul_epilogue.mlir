// run cuda: fuse
// Bias, activation and residual go into the matmul, which also reads w as it lies.
func.func @main(%x: f32[n, 8], %r: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[8, 8]
  %b = weight() {name = "b"} : () -> f32[8]
  %t = transpose(%w) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
  %y = matmul(%x, %t) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
  %z = add(%y, %b) : (f32[n, 8], f32[8]) -> f32[n, 8]
  %g = gelu(%z) {approximate = "none"} : (f32[n, 8]) -> f32[n, 8]
  %s = add(%g, %r) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  return %s : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: f32[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[8, 8]
    %1 = weight() {name = "b"} : () -> f32[8]
    %2 = fused(%arg0, %0, %1, %arg1) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8, 8], %arg4: f32[8], %arg5: f32[n, 8]):
      %3 = transpose(%arg3) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
      %4 = matmul(%arg2, %3) {precision = "full"} : (f32[n, 8], f32[8, 8]) -> f32[n, 8]
      %5 = add(%4, %arg4) : (f32[n, 8], f32[8]) -> f32[n, 8]
      %6 = gelu(%5) {approximate = "none"} : (f32[n, 8]) -> f32[n, 8]
      %7 = add(%6, %arg5) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      yield(%7) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8, 8], f32[8], f32[n, 8]) -> f32[n, 8]
    return %2 : f32[n, 8]
  }
}
