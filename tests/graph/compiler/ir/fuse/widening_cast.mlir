// run cpu: fuse
// Others read h as well, so the residual's cast goes to the product that adds it.
func.func @main(%x: bf16[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> bf16[1, 4, 32, 2]
  %f = cast(%x) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
  %e = exp(%f) : (f32[n, 8]) -> f32[n, 8]
  %h = cast(%e) {dtype = bf16} : (f32[n, 8]) -> bf16[n, 8]
  %p = matmul_packed(%h, %w) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
  %y = cast(%p) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
  %r = cast(%h) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
  %z = add(%y, %r) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  return %z : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: bf16[n, 8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> bf16[1, 4, 32, 2]
    %1 = fused(%arg0) ({
    ^bb0(%arg1: bf16[n, 8]):
      %3 = cast(%arg1) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
      %4 = exp(%3) : (f32[n, 8]) -> f32[n, 8]
      %5 = cast(%4) {dtype = bf16} : (f32[n, 8]) -> bf16[n, 8]
      yield(%5) : (bf16[n, 8]) -> ()
    }) : (bf16[n, 8]) -> bf16[n, 8]
    %2 = fused(%1, %0, %1) ({
    ^bb0(%arg1: bf16[n, 8], %arg2: bf16[1, 4, 32, 2], %arg3: bf16[n, 8]):
      %3 = matmul_packed(%arg1, %arg2) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      %4 = cast(%3) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
      %5 = cast(%arg3) {dtype = f32} : (bf16[n, 8]) -> f32[n, 8]
      %6 = add(%4, %5) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      yield(%6) : (f32[n, 8]) -> ()
    }) : (bf16[n, 8], bf16[1, 4, 32, 2], bf16[n, 8]) -> f32[n, 8]
    return %2 : f32[n, 8]
  }
}
