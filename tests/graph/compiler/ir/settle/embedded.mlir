// run cpu: pack, fuse, hoist, settle
// w is cast and packed when the model is compiled, v when it is loaded: it is returned, too. So is
// u, which is not in the artifact; and exp of t may differ from machine to machine.
func.func @main(%x: bf16[n, 8]) -> (bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[8, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w", embedded} : () -> f32[8, 8]
  %v = weight() {name = "v", embedded} : () -> bf16[8, 8]
  %u = weight() {name = "u"} : () -> bf16[8, 8]
  %t = weight() {name = "t", embedded} : () -> bf16[8, 8]
  %c = cast(%w) {dtype = bf16} : (f32[8, 8]) -> bf16[8, 8]
  %e = exp(%t) : (bf16[8, 8]) -> bf16[8, 8]
  %a = matmul(%x, %c) {precision = "full"} : (bf16[n, 8], bf16[8, 8]) -> bf16[n, 8]
  %b = matmul(%x, %v) {precision = "full"} : (bf16[n, 8], bf16[8, 8]) -> bf16[n, 8]
  %d = matmul(%x, %u) {precision = "full"} : (bf16[n, 8], bf16[8, 8]) -> bf16[n, 8]
  %f = matmul(%x, %e) {precision = "full"} : (bf16[n, 8], bf16[8, 8]) -> bf16[n, 8]
  return %a, %b, %d, %f, %v : bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[8, 8]
}

// gives
module {
  func.func @main(%arg0: bf16[n, 8]) -> (bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[8, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {embedded, name = "w"} : () -> f32[8, 8]
    %1 = weight() {embedded, name = "v"} : () -> bf16[8, 8]
    %2 = weight() {name = "u"} : () -> bf16[8, 8]
    %3 = weight() {embedded, name = "t"} : () -> bf16[8, 8]
    %4 = fused(%0) ({
    ^bb0(%arg1: f32[8, 8]):
      %11 = cast(%arg1) {dtype = bf16} : (f32[8, 8]) -> bf16[8, 8]
      yield(%11) : (bf16[8, 8]) -> ()
    }) {stage = "compile"} : (f32[8, 8]) -> bf16[8, 8]
    %5 = fused(%3) ({
    ^bb0(%arg1: bf16[8, 8]):
      %11 = exp(%arg1) : (bf16[8, 8]) -> bf16[8, 8]
      yield(%11) : (bf16[8, 8]) -> ()
    }) {stage = "init"} : (bf16[8, 8]) -> bf16[8, 8]
    %6 = fused(%4) ({
    ^bb0(%arg1: bf16[8, 8]):
      %11 = pack_b(%arg1) {group = 2 : i64, transposed = false} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
      yield(%11) : (bf16[1, 4, 32, 2]) -> ()
    }) {stage = "compile"} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
    %7 = fused(%1) ({
    ^bb0(%arg1: bf16[8, 8]):
      %11 = pack_b(%arg1) {group = 2 : i64, transposed = false} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
      yield(%11) : (bf16[1, 4, 32, 2]) -> ()
    }) {stage = "init"} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
    %8 = fused(%2) ({
    ^bb0(%arg1: bf16[8, 8]):
      %11 = pack_b(%arg1) {group = 2 : i64, transposed = false} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
      yield(%11) : (bf16[1, 4, 32, 2]) -> ()
    }) {stage = "init"} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
    %9 = fused(%5) ({
    ^bb0(%arg1: bf16[8, 8]):
      %11 = pack_b(%arg1) {group = 2 : i64, transposed = false} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
      yield(%11) : (bf16[1, 4, 32, 2]) -> ()
    }) {stage = "init"} : (bf16[8, 8]) -> bf16[1, 4, 32, 2]
    %10:4 = fused(%arg0, %6, %7, %8, %9) ({
    ^bb0(%arg1: bf16[n, 8], %arg2: bf16[1, 4, 32, 2], %arg3: bf16[1, 4, 32, 2], %arg4: bf16[1, 4, 32, 2], %arg5: bf16[1, 4, 32, 2]):
      %11 = matmul_packed(%arg1, %arg2) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      %12 = matmul_packed(%arg1, %arg3) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      %13 = matmul_packed(%arg1, %arg4) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      %14 = matmul_packed(%arg1, %arg5) {columns = "8"} : (bf16[n, 8], bf16[1, 4, 32, 2]) -> bf16[n, 8]
      yield(%11, %12, %13, %14) : (bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8]) -> ()
    }) : (bf16[n, 8], bf16[1, 4, 32, 2], bf16[1, 4, 32, 2], bf16[1, 4, 32, 2], bf16[1, 4, 32, 2]) -> (bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8])
    return %10#0, %10#1, %10#2, %10#3, %1 : bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[n, 8], bf16[8, 8]
  }
}
