// run cpu: legalize
// The sums of groups are there once, for both products; what they are multiplied by is of weights.
func.func @main(%x: bf16[n, 64]) -> (bf16[n, 40], bf16[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> ui8[40, 32]
  %v = weight() {name = "v"} : () -> ui8[40, 64]
  %s = weight() {name = "s"} : () -> f16[40, 2]
  %m = weight() {name = "m"} : () -> f16[40, 2]
  %a = quantized_matmul(%x, %w, %s, %m) {activations = "float", bits = 4 : i64, group = 32 : i64} : (bf16[n, 64], ui8[40, 32], f16[40, 2], f16[40, 2]) -> bf16[n, 40]
  %b = quantized_matmul(%x, %v, %s, %m) {activations = "int8", bits = 8 : i64, group = 32 : i64} : (bf16[n, 64], ui8[40, 64], f16[40, 2], f16[40, 2]) -> bf16[n, 40]
  return %a, %b : bf16[n, 40], bf16[n, 40]
}

// gives
module {
  func.func @main(%arg0: bf16[n, 64]) -> (bf16[n, 40], bf16[n, 40]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> ui8[40, 32]
    %1 = weight() {name = "v"} : () -> ui8[40, 64]
    %2 = weight() {name = "s"} : () -> f16[40, 2]
    %3 = weight() {name = "m"} : () -> f16[40, 2]
    %4 = reshape(%arg0) {shape = ["n", "2", "32"]} : (bf16[n, 64]) -> bf16[n, 2, 32]
    %5 = cast(%4) {dtype = f32} : (bf16[n, 2, 32]) -> f32[n, 2, 32]
    %6 = sum(%5) {axis = 2 : i64} : (f32[n, 2, 32]) -> f32[n, 2, 1]
    %7 = reshape(%6) {shape = ["n", "2"]} : (f32[n, 2, 1]) -> f32[n, 2]
    %8 = cast(%2) {dtype = f32} : (f16[40, 2]) -> f32[40, 2]
    %9 = cast(%3) {dtype = f32} : (f16[40, 2]) -> f32[40, 2]
    %10 = constant() {value = dense<8.000000e+00> : tensor<f32>} : () -> f32[]
    %11 = mul(%8, %10) : (f32[40, 2], f32[]) -> f32[40, 2]
    %12 = add(%9, %11) : (f32[40, 2], f32[40, 2]) -> f32[40, 2]
    %13 = transpose(%12) {permutation = array<i64: 1, 0>} : (f32[40, 2]) -> f32[2, 40]
    %14 = matmul(%7, %13) {precision = "full"} : (f32[n, 2], f32[2, 40]) -> f32[n, 40]
    %15 = quantized_matmul(%arg0, %0, %2) {activations = "float", bits = 4 : i64, group = 32 : i64} : (bf16[n, 64], ui8[40, 32], f16[40, 2]) -> bf16[n, 40]
    %16 = cast(%15) {dtype = f32} : (bf16[n, 40]) -> f32[n, 40]
    %17 = add(%16, %14) : (f32[n, 40], f32[n, 40]) -> f32[n, 40]
    %18 = cast(%17) {dtype = bf16} : (f32[n, 40]) -> bf16[n, 40]
    %19 = constant() {value = dense<1.280000e+02> : tensor<f32>} : () -> f32[]
    %20 = mul(%8, %19) : (f32[40, 2], f32[]) -> f32[40, 2]
    %21 = add(%9, %20) : (f32[40, 2], f32[40, 2]) -> f32[40, 2]
    %22 = transpose(%21) {permutation = array<i64: 1, 0>} : (f32[40, 2]) -> f32[2, 40]
    %23 = matmul(%7, %22) {precision = "full"} : (f32[n, 2], f32[2, 40]) -> f32[n, 40]
    %24 = constant() {value = dense<128> : tensor<ui8>} : () -> ui8[]
    %25 = add(%1, %24) : (ui8[40, 64], ui8[]) -> ui8[40, 64]
    %26 = cast(%25) {dtype = i8} : (ui8[40, 64]) -> i8[40, 64]
    %27 = quantized_matmul(%arg0, %26, %2) {activations = "int8", bits = 8 : i64, group = 32 : i64} : (bf16[n, 64], i8[40, 64], f16[40, 2]) -> bf16[n, 40]
    %28 = cast(%27) {dtype = f32} : (bf16[n, 40]) -> f32[n, 40]
    %29 = add(%28, %23) : (f32[n, 40], f32[n, 40]) -> f32[n, 40]
    %30 = cast(%29) {dtype = bf16} : (f32[n, 40]) -> bf16[n, 40]
    return %18, %30 : bf16[n, 40], bf16[n, 40]
  }
}
